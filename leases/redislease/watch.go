package redislease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// watches hears of releases for all waiters of the process, on one connection.
// The client connects it again when it breaks and then subscribes again; each
// confirmation of that wakes the name's waiters too, since a release may have
// come in between.
type watches struct {
	client redis.UniversalClient

	mu       sync.Mutex
	channels map[string]*channel
	changed  chan struct{} // capacity 1: channels has changed; nil while run does not
}

type channel struct {
	wakes map[*func()]struct{}
	ready chan struct{} // closed by the first confirmation
}

const (
	watchTime = time.Second      // most of a wait for a confirmation
	idleTime  = 10 * time.Second // the connection's, without waiters
)

var errNotWatching = errors.New("redis: subscribe: no answer")

// Watch implements leases.Waker, by SUBSCRIBE.
func (b *Backend) Watch(ctx context.Context, name string, wake func()) (stop func(), err error) {
	if b.err != nil {
		return nil, b.err
	}
	w, at := &b.watches, b.keys(name).name+":free"
	w.mu.Lock()
	c := w.channels[at]
	if c == nil {
		c = &channel{wakes: make(map[*func()]struct{}), ready: make(chan struct{})}
		w.channels[at] = c
		w.reconcile()
	}
	c.wakes[&wake] = struct{}{}
	w.mu.Unlock()
	stop = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(c.wakes, &wake)
		if len(c.wakes) == 0 && w.channels[at] == c {
			delete(w.channels, at)
			w.reconcile()
		}
	}
	timer := time.NewTimer(watchTime)
	defer timer.Stop()
	select {
	case <-c.ready:
		return stop, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errNotWatching
	}
	stop()
	return nil, err
}

// reconcile makes run look at channels, and starts it. The caller holds mu.
func (w *watches) reconcile() {
	if w.changed == nil {
		w.changed = make(chan struct{}, 1)
		go w.run(w.changed)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run has the connection, until nobody has waited for idleTime.
func (w *watches) run(changed <-chan struct{}) {
	ctx := context.Background()
	pubsub := w.client.Subscribe(ctx)
	defer pubsub.Close()
	subscribed := make(map[string]*channel)
	var messages <-chan any // once there is a connection to read from
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		select {
		case <-changed:
			on, off := w.difference(subscribed)
			// An error is of the connection, which the client makes anew.
			if len(on) > 0 {
				_ = pubsub.Subscribe(ctx, on...)
			}
			if len(off) > 0 {
				_ = pubsub.Unsubscribe(ctx, off...)
			}
			if messages == nil {
				messages = pubsub.ChannelWithSubscriptions()
			}
			idle.Reset(idleTime)
		case m, open := <-messages:
			if !open { // the client was closed
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changed = nil
				return
			}
			switch m := m.(type) {
			case *redis.Message:
				w.wake(m.Channel, false)
			case *redis.Subscription:
				w.wake(m.Channel, m.Kind == "subscribe")
			}
		case <-idle.C:
			if w.stop() {
				return
			}
			idle.Reset(idleTime)
		}
	}
}

// difference brings subscribed up to date and returns what has to be done for
// it. A channel that was left and is wanted again is subscribed again, for its
// confirmation.
func (w *watches) difference(subscribed map[string]*channel) (on, off []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range w.channels {
		if subscribed[name] != c {
			subscribed[name] = c
			on = append(on, name)
		}
	}
	for name := range subscribed {
		if w.channels[name] == nil {
			delete(subscribed, name)
			off = append(off, name)
		}
	}
	return on, off
}

func (w *watches) wake(name string, confirmed bool) {
	w.mu.Lock()
	c := w.channels[name]
	var wakes []func()
	if c != nil {
		for wake := range c.wakes {
			wakes = append(wakes, *wake)
		}
		if confirmed {
			select {
			case <-c.ready:
			default:
				close(c.ready)
			}
		}
	}
	w.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// stop reports whether nobody waits any more; then the next Watch starts run.
func (w *watches) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.channels) > 0 {
		return false
	}
	w.changed = nil
	return true
}
