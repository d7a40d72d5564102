package leases

import (
	"reflect"
	"sync"
)

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
