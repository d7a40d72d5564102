package taskguard

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/simple-module/core/leases"
)

// wait waits in place for the name, if the task may, and calls guarded while it
// is held. Otherwise it returns busy.
func (g *Guard) wait(ctx context.Context, name string, t Task, busy *leases.NotAcquiredError, guarded func(context.Context) error) error {
	if t.MustWait && g.config.busy == Reschedule {
		return g.handle(name, t).Do(ctx, guarded)
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
