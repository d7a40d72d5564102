// Package taskguard runs a queue's task under a lease or a semaphore. What a
// busy name becomes is decided here, for both queues.
package taskguard

import (
	"context"
	"errors"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskkey"
)

// Guard is what the tasks of one middleware run under. It is safe for
// concurrent use.
type Guard struct {
	newHandle func(name string, opts ...leases.Option) *leases.Handle
	slots     int // 0: a lease
	ttl       time.Duration
	config    config
}

// Lease returns a guard of exclusive leases.
func Lease(ttl time.Duration, opts []Option) *Guard {
	return &Guard{ttl: ttl, config: newConfig(1, opts), newHandle: func(name string, opts ...leases.Option) *leases.Handle {
		return leases.Lease(name, ttl, opts...)
	}}
}

// Semaphore returns a guard of semaphores.
func Semaphore(slots int, ttl time.Duration, opts []Option) *Guard {
	return &Guard{slots: slots, ttl: ttl, config: newConfig(slots, opts), newHandle: func(name string, opts ...leases.Option) *leases.Handle {
		return leases.Semaphore(name, slots, ttl, opts...)
	}}
}

// Task is one attempt of a task.
type Task struct {
	// Key is what it is guarded by; "" is a task that needs no guard.
	Key string

	// Owner is the same for every attempt of the task; "" is a random one.
	Owner string

	// MustWait says that the queue would drop the task if it were put back:
	// instead of that it waits in place until ctx ends, also through errors of
	// the store. It needs an Owner.
	MustWait bool

	// WillRetry reports whether the queue brings the task back after it failed
	// with err: HoldThroughRetries then leaves it its hold. nil: never.
	WillRetry func(err error) bool
}

// Run calls work while the task's name is held. work's ctx carries the handle
// and ends when the hold is lost. Run returns work's error, joined with one
// that matches leases.ErrLost if the hold was lost before work returned; that
// is a *TakenOverError when a later attempt of the task has the hold.
//
// When work was not called Run returns nil (the name was busy, and OnBusy is
// Skip), a *RescheduleError, an error that counts as a failure (Fail), or what
// kept the name from being acquired: the store's error, a bad argument's, or
// ctx's. A task never runs without its guard.
//
// Guards nest. An inner one does not wait in place, since the outer's name is
// held then: the outermost does that for it, holding nothing else, and calls
// work again.
func (g *Guard) Run(ctx context.Context, t Task, work func(ctx context.Context) error) error {
	if g.config.err != nil {
		return g.config.err
	}
	if t.Key == "" {
		return work(ctx)
	}
	name := taskkey.Name(t.Key)
	if ctx.Value(inside{}) != nil {
		return g.attempt(ctx, name, t, work, false)
	}
	ctx = context.WithValue(ctx, inside{}, true)
	err := g.attempt(ctx, name, t, work, true)
	for again := t.Owner != ""; again; again = t.MustWait {
		var busy *RescheduleError
		if !errors.As(err, &busy) || busy.guard == g && !t.MustWait {
			break
		}
		called := false
		waited := busy.guard.wait(ctx, busy.Busy.Name, t, busy.Busy, func(context.Context) error {
			called = true
			// Not under the ctx of this hold: busy.guard takes it over, since
			// the task is its owner (R4).
			err = g.attempt(ctx, name, t, work, false)
			return nil
		})
		if !called && asBusy(waited) == nil {
			return waited
		}
		if !called {
			break
		}
	}
	return err
}

// inside is the key of a ctx inside a guard.
type inside struct{}

// attempt acquires the name, at once or after a wait in place, and calls work.
func (g *Guard) attempt(ctx context.Context, name string, t Task, work func(context.Context) error, mayWait bool) error {
	var ran *leases.Handle
	guarded := func(ctx context.Context) error {
		if ctx.Err() != nil { // it ended while the grant was on its way
			return context.Cause(ctx)
		}
		ran, _ = leases.FromContext(ctx)
		return g.work(ctx, t, work)
	}
	err := g.handle(name, t, leases.NonBlocking()).Do(ctx, guarded)
	if busy := asBusy(err); ran == nil && busy != nil && mayWait {
		err = g.wait(ctx, name, t, busy, guarded)
	}
	if busy := asBusy(err); ran == nil && busy != nil {
		return g.whenBusy(ctx, busy)
	}
	if ran != nil && err != nil && t.Owner != "" && g.takenOver(ctx, ran) {
		g.config.logger().WarnContext(ctx, "task ended after a later attempt of it had taken its lease over", "name", name, "fence", ran.Fence(), "error", err)
		return &TakenOverError{err}
	}
	return err
}

func (g *Guard) handle(name string, t Task, opts ...leases.Option) *leases.Handle {
	if t.Owner != "" {
		opts = append(opts, leases.Owner(taskkey.Owner(t.Owner)))
	}
	return g.newHandle(name, append(opts, g.config.handle...)...)
}

func (g *Guard) backend() leases.Backend {
	if g.config.backend != nil {
		return g.config.backend
	}
	return leases.Default()
}

// asBusy returns nil for an error that says more than that the name is busy:
// above all that ctx ended.
func asBusy(err error) *leases.NotAcquiredError {
	busy, _ := err.(*leases.NotAcquiredError)
	return busy
}

var errPanic = errors.New("the task panicked")

// work calls work. If the queue will bring the task back, HoldThroughRetries
// leaves it its hold, with a whole TTL.
func (g *Guard) work(ctx context.Context, t Task, work func(context.Context) error) error {
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
	began := time.Now()
	err = work(ctx)
	h, _ := leases.FromContext(ctx)
	ran(g.backend(), h.Name(), time.Since(began))
	return err
}

// keeps reports whether the task keeps its hold after err. A task that has only
// found an inner guard busy has not begun: it gives the outer one back.
func (g *Guard) keeps(t Task, err error) bool {
	var (
		rescheduled *RescheduleError
		failed      *failError
	)
	return g.config.holdThroughRetries && t.Owner != "" && t.WillRetry != nil &&
		err != nil && !errors.As(err, &rescheduled) && !errors.As(err, &failed) && t.WillRetry(err)
}
