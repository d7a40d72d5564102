// Package taskguard runs a queue's task under a lease or a semaphore. What a
// busy name becomes is decided here, for both queues.
package taskguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskkey"
)

// Guard is what the tasks of one middleware run under. It is safe for
// concurrent use.
type Guard struct {
	handle func(name string, opts ...leases.Option) *leases.Handle
	slots  int // 0: a lease
	ttl    time.Duration
	config config
	room   room
}

// Lease returns a guard of exclusive leases.
func Lease(ttl time.Duration, opts []Option) *Guard {
	return newGuard(&Guard{ttl: ttl, config: newConfig(1, opts), handle: func(name string, opts ...leases.Option) *leases.Handle {
		return leases.Lease(name, ttl, opts...)
	}})
}

// Semaphore returns a guard of semaphores.
func Semaphore(slots int, ttl time.Duration, opts []Option) *Guard {
	return newGuard(&Guard{slots: slots, ttl: ttl, config: newConfig(slots, opts), handle: func(name string, opts ...leases.Option) *leases.Handle {
		return leases.Semaphore(name, slots, ttl, opts...)
	}})
}

func newGuard(g *Guard) *Guard {
	g.room.most = g.config.maxWaiting
	return g
}

// Task is one attempt of a task.
type Task struct {
	// Key is what it is guarded by; "" is a task that needs no guard.
	Key string

	// Owner is the same for every attempt of the task; "" is a random one.
	Owner string

	// MustWait says that the queue would drop the task if it were put back:
	// instead of that it waits in place until ctx ends.
	MustWait bool

	// WillRetry reports whether the queue brings the task back after it failed
	// with err: HoldThroughRetries then leaves it its hold. nil: never.
	WillRetry func(err error) bool
}

// RescheduleError says that the task has not run, since its name is busy, and
// is to come back after Delay. It matches leases.ErrNotAcquired.
type RescheduleError struct {
	Delay time.Duration
	Busy  *leases.NotAcquiredError
}

func (e *RescheduleError) Error() string {
	return fmt.Sprintf("%v; the task comes back in %v", e.Busy, e.Delay.Round(time.Millisecond))
}

func (e *RescheduleError) Unwrap() error { return e.Busy }

// Run calls work while the task's name is held. work's ctx carries the handle
// and ends when the hold is lost. Run returns work's error, joined with one
// that matches leases.ErrLost if the hold was lost before work returned; that
// is a *TakenOverError when a later attempt of the task has the hold.
//
// When work was not called Run returns nil (the name was busy, and OnBusy is
// Skip), a *RescheduleError, an error that counts as a failure (Fail), or what
// kept the name from being acquired: the store's error, a bad argument's, or
// ctx's. A task never runs without its guard.
func (g *Guard) Run(ctx context.Context, t Task, work func(ctx context.Context) error) error {
	if g.config.err != nil {
		return g.config.err
	}
	if t.Key == "" {
		return work(ctx)
	}
	name, ran := taskkey.Name(t.Key), (*leases.Handle)(nil)
	guarded := func(ctx context.Context) error {
		if ctx.Err() != nil { // it ended while the grant was on its way
			return context.Cause(ctx)
		}
		ran, _ = leases.FromContext(ctx)
		return g.attempt(ctx, t, work)
	}

	err := g.acquire(name, t, leases.NonBlocking()).Do(ctx, guarded)
	if busy := asBusy(err); ran == nil && busy != nil {
		err = g.wait(ctx, name, t, busy, guarded)
	}
	if busy := asBusy(err); ran == nil && busy != nil {
		return g.config.whenBusy(ctx, busy)
	}
	if ran != nil && err != nil && t.Owner != "" && g.takenOver(ctx, ran) {
		g.config.logger().WarnContext(ctx, "task ended after a later attempt of it had taken its lease over", "name", name, "fence", ran.Fence(), "error", err)
		return &TakenOverError{err}
	}
	return err
}

func (g *Guard) acquire(name string, t Task, opts ...leases.Option) *leases.Handle {
	if t.Owner != "" {
		opts = append(opts, leases.Owner(taskkey.Owner(t.Owner)))
	}
	return g.handle(name, append(opts, g.config.handle...)...)
}

// wait waits in place, if the task may, and otherwise returns busy.
func (g *Guard) wait(ctx context.Context, name string, t Task, busy error, guarded func(context.Context) error) error {
	if t.MustWait && g.config.busy == Reschedule {
		return g.acquire(name, t).Do(ctx, guarded)
	}
	if g.config.wait == 0 || !g.room.enter(name) {
		return busy
	}
	waiting := true
	leave := func() {
		if waiting {
			waiting = false
			g.room.leave(name)
		}
	}
	defer leave()
	return g.acquire(name, t, leases.Wait(g.config.wait)).Do(ctx, func(ctx context.Context) error {
		leave()
		return guarded(ctx)
	})
}

// asBusy returns nil for an error that says more than that the name is busy:
// above all that ctx ended.
func asBusy(err error) *leases.NotAcquiredError {
	busy, _ := err.(*leases.NotAcquiredError)
	return busy
}

var errPanic = errors.New("the task panicked")

// attempt is one attempt of the work. If the queue will bring the task back,
// HoldThroughRetries leaves it its hold, with a whole TTL.
func (g *Guard) attempt(ctx context.Context, t Task, work func(context.Context) error) error {
	err := errPanic
	defer func() {
		if !g.keeps(t, err) {
			return
		}
		h, _ := leases.FromContext(ctx)
		refresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
		defer cancel()
		if err := h.Refresh(refresh); err != nil {
			g.config.logger().WarnContext(ctx, "lease kept for the retry could not be refreshed", "name", h.Name(), "fence", h.Fence(), "error", err)
		}
		h.Detach()
	}()
	err = work(ctx)
	return err
}

// keeps reports whether the task keeps its hold after err. A task that has only
// found an inner guard busy has not begun: it gives the outer one back.
func (g *Guard) keeps(t Task, err error) bool {
	var inner *RescheduleError
	return g.config.holdThroughRetries && t.Owner != "" && t.WillRetry != nil &&
		err != nil && !errors.As(err, &inner) && t.WillRetry(err)
}
