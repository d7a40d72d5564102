package pglease

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The codes are in the appendix "PostgreSQL Error Codes".
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	undefinedTable       = "42P01"
	undefinedColumn      = "42703"
)

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

// explain says that err is Postgres's, and what to do about what it means here.
func explain(err error) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return fmt.Errorf("postgres: %w", err)
	case pg.Code == undefinedTable:
		return &failure{`postgres: relation "sm_lease" does not exist (run: make migrate, or migrations.Up)`, err}
	case pg.Code == undefinedColumn:
		return &failure{"postgres: the table sm_lease is of an older version (run: make migrate, or migrations.Up)", err}
	case pg.Code == lockNotAvailable:
		return &failure{"postgres: the hold's row is locked by another transaction, most likely a Guard's: end that first", err}
	}
	return &failure{fmt.Sprintf("postgres: %s (SQLSTATE %s)", pg.Message, pg.Code), err}
}

// failure has a text of its own around the driver's error.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// timeoutError says that Timeout ended the operation, during err.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("postgres: no answer within %v: is the server reachable, and the pool large enough?", e.after)
}
func (e *timeoutError) Unwrap() error { return e.err }
