package taskguard

import (
	"context"
	"errors"
	"time"

	"github.com/simple-module/core/leases"
)

// wait waits in place for the name, if the task may, and calls guarded while it
// is held. Otherwise it returns busy.
func (g *Guard) wait(ctx context.Context, name string, t Task, busy *leases.NotAcquiredError, guarded func(context.Context) error) error {
	if t.MustWait && g.config.busy == Reschedule {
		return g.waitOut(ctx, name, t, guarded)
	}
	d := g.config.wait
	if end, ok := ctx.Deadline(); ok {
		// A task that waited until its deadline would have failed by it.
		d = min(d, time.Until(end)/2)
	}
	if d <= 0 {
		return busy
	}
	r := roomOf(g.backend(), name)
	if r.expected(max(g.slots, 1)) > 2*d {
		return busy // in vain
	}
	leave, ok := r.enter(g.config.maxWaiting)
	if !ok {
		return busy
	}
	defer leave()
	return g.handle(name, t, leases.Wait(d)).Do(ctx, func(ctx context.Context) error {
		leave()
		return guarded(ctx)
	})
}

// waitOut waits in place until ctx ends, for the queue would drop the task. It
// would do so for an error of the store, too: the name is asked for again.
func (g *Guard) waitOut(ctx context.Context, name string, t Task, guarded func(context.Context) error) error {
	for {
		begun := false
		err := g.handle(name, t).Do(ctx, func(ctx context.Context) error {
			if ctx.Err() != nil { // a hold that is over already begins nothing
				return context.Cause(ctx)
			}
			begun = true
			return guarded(ctx)
		})
		if begun || ctx.Err() != nil || errors.Is(err, leases.ErrInvalid) || errors.Is(err, leases.ErrKind) {
			return err
		}
		again := jittered(usualDelay)
		g.config.logger().WarnContext(ctx, "task waits on for its lease after an error of the store", "name", name, "again_after", again, "error", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return err
		}
	}
}
