package taskguard

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/simple-module/core/leases"
)

const (
	usualDelay = time.Second           // while nothing is known of the queue
	leastDelay = 50 * time.Millisecond // a round trip through the queue is not worth less
	mostDelay  = 30 * time.Second      // what is known may be wrong by then
)

// room is what a process knows of the tasks with one key that it can't run yet:
// those that wait in place, so that one busy key does not fill every worker,
// and those that it has sent back into the queue. It is guarded by rooms.
type room struct {
	waiting int
	hold    time.Duration // what a task takes, on average; 0: unknown
	next    time.Time     // when it is the turn of the task sent away last
}

type place struct {
	backend leases.Backend // nil for one that can't be compared
	name    string
}

var rooms = struct {
	sync.Mutex
	m       map[place]*room
	sweepAt int
}{m: make(map[place]*room), sweepAt: minSweep}

const minSweep = 1024 // rooms kept before empty ones are dropped

func placeOf(b leases.Backend, name string) place {
	if !reflect.ValueOf(b).Comparable() {
		b = nil
	}
	return place{b, name}
}

// roomOf returns the room of a busy name.
func roomOf(b leases.Backend, name string) *room {
	at := placeOf(b, name)
	rooms.Lock()
	defer rooms.Unlock()
	r := rooms.m[at]
	if r == nil {
		if len(rooms.m) >= rooms.sweepAt {
			sweep()
		}
		r = new(room)
		rooms.m[at] = r
	}
	return r
}

// sweep drops the rooms whose tasks have all come back. The caller holds rooms.
func sweep() {
	for at, r := range rooms.m {
		if r.waiting == 0 && time.Since(r.next) > mostDelay {
			delete(rooms.m, at)
		}
	}
	rooms.sweepAt = max(minSweep, 2*len(rooms.m))
}

// enter reports false when most tasks wait already. leave may be called more
// than once.
func (r *room) enter(most int) (leave func(), ok bool) {
	rooms.Lock()
	defer rooms.Unlock()
	if r.waiting >= most {
		return nil, false
	}
	r.waiting++
	return sync.OnceFunc(func() {
		rooms.Lock()
		defer rooms.Unlock()
		r.waiting--
	}), true
}

// ran tells what a task with a name took, if the name has been busy here.
func ran(b leases.Backend, name string, took time.Duration) {
	rooms.Lock()
	defer rooms.Unlock()
	r := rooms.m[placeOf(b, name)]
	switch {
	case r == nil:
	case r.hold == 0:
		r.hold = took
	default:
		r.hold += (took - r.hold) / 8
	}
}

// expected is how long a task that waits in place from now on is likely to; 0
// while that is unknown.
func (r *room) expected(slots int) time.Duration {
	rooms.Lock()
	defer rooms.Unlock()
	return time.Duration(r.waiting+1) * r.hold / time.Duration(slots)
}

// turn returns after what delay a task that does not wait in place is to come
// back: when those in front of it, who wait here or were sent away before it,
// have had the slots for what tasks take. While that is unknown it is a second,
// or what the holder has left if that is less.
func (r *room) turn(slots int, remaining time.Duration) time.Duration {
	rooms.Lock()
	defer rooms.Unlock()
	if r.hold == 0 {
		d := jittered(usualDelay)
		if remaining > 0 {
			d = min(d, remaining)
		}
		return max(d, leastDelay)
	}
	now := time.Now()
	each := r.hold / time.Duration(slots)
	next := now.Add(time.Duration(r.waiting+1) * each)
	if after := r.next.Add(each); after.After(next) {
		next = after
	}
	if latest := now.Add(mostDelay); next.After(latest) {
		return jittered(mostDelay)
	}
	r.next = next
	return max(next.Sub(now), leastDelay)
}

// jittered is d, more or less by half of it.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }
