package sqlitelease

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// timeoutError is the cause of a context that Timeout ended.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("database is locked: another connection kept the write lock, or every connection of the pool, for %v", e.after)
}

// explain says that err is SQLite's, why a wait ended, and what to do about a
// table that is not there.
func explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "no such table: sm_lease"):
		return &failure{"sqlite: no such table: sm_lease (run: make migrate, or migrations.Up)", err}
	case strings.Contains(err.Error(), "no such index: sm_lease"):
		return &failure{"sqlite: the table sm_lease is of an older version (run: make migrate, or migrations.Up)", err}
	}
	cause := context.Cause(ctx)
	if _, timedOut := cause.(*timeoutError); timedOut {
		return &failure{"sqlite: " + cause.Error(), err}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("sqlite: %w", ctx.Err())
	}
	return fmt.Errorf("sqlite: %w", err)
}

// isLocked reports whether SQLite refused because of another connection's
// lock. The texts are SQLite's own for SQLITE_BUSY, SQLITE_LOCKED and
// SQLITE_PROTOCOL; the drivers agree on them, not on a type for the code.
func isLocked(err error) bool {
	text := err.Error()
	return strings.Contains(text, "database is locked") ||
		strings.Contains(text, "database table is locked") ||
		strings.Contains(text, "locking protocol")
}

// failure has a text of its own around the driver's error.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }
