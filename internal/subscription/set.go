// Package subscription keeps what the waiters of a process want to hear of, for
// backends that subscribe to it on one connection for all names.
package subscription

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	confirmTime = time.Second // most of a wait for a confirmation

	// IdleTime is how long a Run keeps its connection without waiters.
	IdleTime = 10 * time.Second
)

// ErrNotConfirmed is returned by Watch when Run did not confirm a topic in time.
var ErrNotConfirmed = errors.New("the subscription was not confirmed in time")

// Set is the topics that somebody watches. Its methods are safe for concurrent
// use.
type Set struct {
	// Run is started when a topic is watched and none was before. It brings
	// its connection in line (Difference) each time it receives from changed,
	// calls Wake for what it hears, and returns after Stop.
	Run func(changed <-chan struct{})

	mu      sync.Mutex
	topics  map[string]*topic
	changed chan struct{} // capacity 1; nil while Run does not run
}

type topic struct {
	wakes map[*func()]struct{}
	ready chan struct{} // closed by the first confirmation
}

// Watch calls wake for each Wake of the topic until stop is called. It returns
// once Run has confirmed the topic, or with an error when ctx ends or that
// takes too long.
func (s *Set) Watch(ctx context.Context, name string, wake func()) (stop func(), err error) {
	s.mu.Lock()
	t := s.topics[name]
	if t == nil {
		if s.topics == nil {
			s.topics = make(map[string]*topic)
		}
		t = &topic{wakes: make(map[*func()]struct{}), ready: make(chan struct{})}
		s.topics[name] = t
		s.notify()
	}
	t.wakes[&wake] = struct{}{}
	s.mu.Unlock()
	stop = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(t.wakes, &wake)
		if len(t.wakes) == 0 && s.topics[name] == t {
			delete(s.topics, name)
			s.notify()
		}
	}
	timer := time.NewTimer(confirmTime)
	defer timer.Stop()
	select {
	case <-t.ready:
		return stop, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = ErrNotConfirmed
	}
	stop()
	return nil, err
}

// notify makes Run look at the topics, and starts it. The caller holds mu.
func (s *Set) notify() {
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
		go s.Run(s.changed)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Subscribed is the topics that a connection is subscribed to.
type Subscribed map[string]*topic

// Difference brings subscribed up to date and returns what has to be done for
// it. A topic that was left and is watched again is in on, for its
// confirmation.
func (s *Set) Difference(subscribed Subscribed) (on, off []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.topics {
		if subscribed[name] != t {
			subscribed[name] = t
			on = append(on, name)
		}
	}
	for name := range subscribed {
		if s.topics[name] == nil {
			delete(subscribed, name)
			off = append(off, name)
		}
	}
	return on, off
}

// Wake wakes the waiters of a topic. confirmed says that the topic is
// subscribed from now on; waiters are woken by that too, since what they wait
// for may have come before.
func (s *Set) Wake(name string, confirmed bool) {
	s.mu.Lock()
	var wakes []func()
	if t := s.topics[name]; t != nil {
		for wake := range t.wakes {
			wakes = append(wakes, *wake)
		}
		if confirmed {
			select {
			case <-t.ready:
			default:
				close(t.ready)
			}
		}
	}
	s.mu.Unlock()
	for _, wake := range wakes { // not under mu: it may call stop
		wake()
	}
}

// Stop reports whether Run may return, because nobody watches; with force it
// may in any case. The next Watch starts it again.
func (s *Set) Stop(force bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.topics) > 0 && !force {
		return false
	}
	s.changed = nil
	return true
}
