package taskguard

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-module/core/leases"
)

// RescheduleError says that the task has not run, since its name is busy, and
// is to come back after Delay. It matches leases.ErrNotAcquired.
type RescheduleError struct {
	Delay time.Duration
	Busy  *leases.NotAcquiredError
	guard *Guard // that found it busy
}

func (e *RescheduleError) Error() string {
	return fmt.Sprintf("%v; the task comes back in %v", e.Busy, e.Delay.Round(time.Millisecond))
}

func (e *RescheduleError) Unwrap() error { return e.Busy }

// failError is the error of Fail. An outer guard knows by it that the task has
// not begun.
type failError struct{ error }

func (e *failError) Unwrap() error { return e.error }

// whenBusy is what a busy name becomes in a queue.
func (g *Guard) whenBusy(ctx context.Context, busy *leases.NotAcquiredError) error {
	switch g.config.busy {
	case Skip:
		g.config.logger().InfoContext(ctx, "task skipped: its lease is busy", "name", busy.Name, "retry_after", busy.RetryAfter)
		return nil
	case Fail:
		return &failError{busy}
	}
	return &RescheduleError{Delay: roomOf(g.backend(), busy.Name).turn(max(g.slots, 1), busy.RetryAfter), Busy: busy, guard: g}
}
