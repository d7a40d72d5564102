package leases

import (
	"container/list"
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// This file is what the process knows of its own holds and waiters, beside
// what the store knows: a take-over and a release inside one process are
// noticed at once. All of it is a hint; the store decides.

// place is a name on a backend.
type place struct {
	backend Backend
	name    string
}

// placeOf reports false for a backend that can't be compared, and so can't be
// recognized: its holds and waiters do without the hints.
func placeOf(b Backend, name string) (place, bool) {
	return place{b, name}, reflect.ValueOf(b).Comparable()
}

// holdsByOwner has the live holds of owners that were given by Owner. A random
// token has its only hold in its handle.
var holdsByOwner = struct {
	sync.Mutex
	m map[ownedPlace]*hold
}{m: make(map[ownedPlace]*hold)}

type ownedPlace struct {
	place
	owner string
}

// registerOwner makes h the known hold of its owner and ends the one that it
// took over: the process that runs a retry stops the older attempt at once.
func registerOwner(h *hold) {
	at, ok := placeOf(h.backend, h.Name)
	if !ok {
		return
	}
	key := ownedPlace{at, h.Owner}
	forget := func() {
		holdsByOwner.Lock()
		defer holdsByOwner.Unlock()
		if holdsByOwner.m[key] == h {
			delete(holdsByOwner.m, key)
		}
	}
	holdsByOwner.Lock()
	stale := holdsByOwner.m[key]
	if stale != nil && stale.Fence > h.Fence {
		stale = h // the answers came in another order than the grants
	} else {
		holdsByOwner.m[key] = h
	}
	holdsByOwner.Unlock()
	if stale != nil {
		stale.lose(reasonTakenOver)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive() {
		h.forget = forget
	} else {
		forget()
	}
}

// lines has the waiters of each name, first come first.
var lines = struct {
	sync.Mutex
	m       map[place]*list.List
	waiters atomic.Int64 // spares a release the lock when nobody waits
}{m: make(map[place]*list.List)}

type waiter struct {
	at      place
	element *list.Element
	woken   chan struct{} // capacity 1; never receives for a backend that can't be compared
}

func joinLine(b Backend, name string) *waiter {
	at, ok := placeOf(b, name)
	w := &waiter{at: at, woken: make(chan struct{}, 1)}
	if !ok {
		return w
	}
	lines.waiters.Add(1)
	lines.Lock()
	defer lines.Unlock()
	line := lines.m[at]
	if line == nil {
		line = list.New()
		lines.m[at] = line
	}
	w.element = line.PushBack(w)
	return w
}

// leave passes a wake-up that w did not use on to the next in line.
func (w *waiter) leave() {
	if w.element == nil {
		return
	}
	lines.waiters.Add(-1)
	lines.Lock()
	line := lines.m[w.at]
	line.Remove(w.element)
	if line.Len() == 0 {
		delete(lines.m, w.at)
	}
	lines.Unlock()
	select {
	case <-w.woken:
		wakeNext(w.at.backend, w.at.name)
	default:
	}
}

// wakeNext wakes the first waiter of this process that has not been woken.
func wakeNext(b Backend, name string) {
	if lines.waiters.Load() == 0 {
		return
	}
	at, ok := placeOf(b, name)
	if !ok {
		return
	}
	lines.Lock()
	defer lines.Unlock()
	line := lines.m[at]
	if line == nil {
		return
	}
	for e := line.Front(); e != nil; e = e.Next() {
		select {
		case e.Value.(*waiter).woken <- struct{}{}:
			return
		default:
		}
	}
}

// backgroundTime bounds a release that nobody waits for.
const backgroundTime = 5 * time.Second

// background bounds how many of them run at once, so that a store that is
// down does not gather goroutines; what is not released expires.
var background = make(chan struct{}, 64)

// releaseInBackground gives a hold back that nobody will use.
func releaseInBackground(ctx context.Context, b Backend, h Hold) {
	select {
	case background <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-background }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTime)
		defer cancel()
		for pause := 50 * time.Millisecond; ; pause *= 2 {
			if _, err := b.Release(ctx, h); err == nil {
				wakeNext(b, h.Name)
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
}
