package leases

import (
	"container/list"
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A line has the waiters of this process for one name, first come first
// served. Only the first of them, the asker, asks the store; the others wait
// for its place. So a name costs the store the same whether one or a thousand
// wait for it here, and nobody overtakes.
//
// Between processes the store keeps the order, if the backend is a Sequencer:
// the line has a ticket there, which stands for all its waiters.
//
// Waiters for different slot counts of a semaphore have lines of their own: one
// may be granted what the other is refused (R13).
type line struct {
	backend Backend
	name    string
	slots   int

	waiters list.List // of *waiter; guarded by lines

	// The asker's, which passes them on with its place.
	next     time.Time          // when to ask; zero: at once
	pause    time.Duration      // the back-off after that
	endWatch context.CancelFunc // nil while nobody listens for releases
	inStore  bool               // the ticket may stand in the store's line

	ticket  string      // for a Sequencer
	watched atomic.Bool // releases, or the ticket's turns, are heard of
	called  atomic.Bool // the store calls the ticket when its turn comes
}

// lines has the lines that have waiters, by place.
var lines = struct {
	sync.Mutex
	m       map[place][]*line
	waiters atomic.Int64 // spares a release the lock when nobody waits
}{m: make(map[place][]*line)}

type waiter struct {
	line    *line
	element *list.Element
	first   chan struct{} // closed when the waiter becomes the asker
	woken   chan struct{} // capacity 1: the name may have become free
}

// joinLine puts a waiter at the end of the line. With behind it does so only
// when somebody waits already, and returns nil otherwise.
func joinLine(b Backend, name string, slots int, behind bool) *waiter {
	at, known := placeOf(b, name)
	lines.Lock()
	defer lines.Unlock()
	var l *line
	if known {
		for _, other := range lines.m[at] {
			if other.slots == slots {
				l = other
			}
		}
	}
	if l == nil {
		if behind {
			return nil
		}
		l = &line{backend: b, name: name, slots: slots, pause: firstPause, ticket: newTicket()}
		if known {
			lines.m[at] = append(lines.m[at], l)
		}
	}
	w := &waiter{line: l, first: make(chan struct{}), woken: make(chan struct{}, 1)}
	w.element = l.waiters.PushBack(w)
	if l.waiters.Len() == 1 {
		close(w.first)
	}
	lines.waiters.Add(1)
	return w
}

// leave makes the next waiter the asker if w was. A wake-up that w has not
// acted on goes with the place.
func (w *waiter) leave() {
	l := w.line
	lines.waiters.Add(-1)
	lines.Lock()
	defer lines.Unlock()
	wasFirst := l.waiters.Front() == w.element
	l.waiters.Remove(w.element)
	front := l.waiters.Front()
	if front == nil {
		l.remove()
		return
	}
	if !wasFirst {
		return
	}
	next := front.Value.(*waiter)
	close(next.first)
	select {
	case <-w.woken:
		next.wake()
	default:
	}
}

// remove is called with lines locked, when the last waiter has left.
func (l *line) remove() {
	if l.endWatch != nil {
		l.endWatch()
	}
	if l.inStore {
		go leaveLine(l.backend.(Sequencer), l.name, l.ticket)
	}
	at, known := placeOf(l.backend, l.name)
	if !known {
		return
	}
	rest := lines.m[at][:0]
	for _, other := range lines.m[at] {
		if other != l {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(lines.m, at)
	} else {
		clear(lines.m[at][len(rest):])
		lines.m[at] = rest
	}
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it has not acted on the last one yet
	}
}

// wakeLines wakes the askers of a name.
func wakeLines(b Backend, name string) {
	if lines.waiters.Load() == 0 {
		return
	}
	at, known := placeOf(b, name)
	if !known {
		return
	}
	lines.Lock()
	defer lines.Unlock()
	for _, l := range lines.m[at] {
		if !l.called.Load() { // else it may be another process's turn
			l.waiters.Front().Value.(*waiter).wake()
		}
	}
}

// watch makes releases in other processes wake the line, if the backend hears
// of them, and reports whether that has begun now. Only the asker calls it.
func (l *line) watch() bool {
	if l.endWatch != nil {
		return false
	}
	var begin func(ctx context.Context) (stop func(), err error)
	switch b := l.backend.(type) {
	case Sequencer:
		begin = func(ctx context.Context) (func(), error) { return b.WatchTurn(ctx, l.name, l.ticket, l.wake) }
	case Waker:
		begin = func(ctx context.Context) (func(), error) { return b.Watch(ctx, l.name, l.wake) }
	default:
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.endWatch = cancel
	go l.keepWatch(ctx, begin)
	return true
}

// keepWatch begins to watch, again after errors: until then the line relies on
// its back-off. ctx ends with the line.
func (l *line) keepWatch(ctx context.Context, begin func(context.Context) (func(), error)) {
	for pause := firstWatch; ; pause = min(2*pause, lastWatch) {
		stop, err := begin(ctx)
		if err == nil {
			context.AfterFunc(ctx, stop)
			l.watched.Store(true)
			l.wake() // a release may have come before
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// The pauses between attempts to watch.
const (
	firstWatch = 100 * time.Millisecond
	lastWatch  = 10 * time.Second
)

// wake makes the asker ask.
func (l *line) wake() {
	lines.Lock()
	defer lines.Unlock()
	if front := l.waiters.Front(); front != nil {
		front.Value.(*waiter).wake()
	}
}

// Acquire is the asker's attempt. Only a ticket that can be called stands in
// the store's line.
func (l *line) Acquire(ctx context.Context, c Claim) (Grant, error) {
	b, ok := l.backend.(Sequencer)
	if !ok || !l.watched.Load() {
		return l.backend.Acquire(ctx, c)
	}
	lines.Lock()
	again := l.waiters.Len() > 1
	lines.Unlock()
	l.inStore = true
	g, err := b.AcquireInTurn(ctx, c, l.ticket, again)
	if err == nil {
		l.inStore = !g.Held || again
	}
	l.called.Store(err == nil && l.inStore)
	return g, err
}

// newTicket is unlike every other, of all processes.
func newTicket() string {
	return process + strconv.FormatUint(tickets.Add(1), 36)
}

var (
	process = rand.Text()[:16]
	tickets atomic.Uint64
)

// leaveLine gives a ticket back that nobody waits with any more. When that
// fails its turn comes, and ends soon.
func leaveLine(b Sequencer, name, ticket string) {
	ctx, cancel := context.WithTimeout(context.Background(), backgroundTime)
	defer cancel()
	select {
	case background <- struct{}{}:
		_ = b.LeaveLine(ctx, name, ticket)
		<-background
	case <-ctx.Done():
	}
}
