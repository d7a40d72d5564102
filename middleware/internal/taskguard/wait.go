package taskguard

import (
	"context"
	"errors"
	"reflect"
	"sync"
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
	leave, ok := enterRoom(g.backend(), name, g.config.maxWaiting)
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
			begun = ctx.Err() == nil // a hold that is over already begins nothing
			return guarded(ctx)
		})
		if begun || ctx.Err() != nil || errors.Is(err, leases.ErrInvalid) || errors.Is(err, leases.ErrKind) {
			return err
		}
		again := delay(0)
		g.config.logger().WarnContext(ctx, "task waits on for its lease after an error of the store", "name", name, "again_after", again, "error", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return err
		}
	}
}

// rooms counts the tasks of this process that wait in place for each name, so
// that one busy name does not fill every worker.
var rooms = struct {
	sync.Mutex
	waiting map[room]int
}{waiting: make(map[room]int)}

type room struct {
	backend leases.Backend // nil for one that can't be compared
	name    string
}

// enterRoom reports false when most tasks wait already. leave may be called
// more than once.
func enterRoom(b leases.Backend, name string, most int) (leave func(), ok bool) {
	at := room{name: name}
	if reflect.ValueOf(b).Comparable() {
		at.backend = b
	}
	rooms.Lock()
	defer rooms.Unlock()
	if rooms.waiting[at] >= most {
		return nil, false
	}
	rooms.waiting[at]++
	return sync.OnceFunc(func() {
		rooms.Lock()
		defer rooms.Unlock()
		if rooms.waiting[at]--; rooms.waiting[at] == 0 {
			delete(rooms.waiting, at)
		}
	}), true
}
