package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simple-module/core/leases"
)

var errStore = errors.New("the store does not answer")

// faulty lets calls of the backend under test fail as a store behind a network
// does: before they are applied, or after, when only the reply is lost.
type faulty struct {
	leases.Backend

	mu       sync.Mutex
	script   map[op][]fault // of the next calls; those after them work
	down     map[op]fault   // of every call after those
	made     map[op][]call
	replyLag time.Duration
}

type call struct {
	began, ended time.Time
	failed       bool
}

type op string

const (
	acquiring  op = "acquire"
	refreshing op = "refresh"
	releasing  op = "release"
)

type fault int

const (
	works     fault = iota
	unsent          // fails, and is not applied
	replyLost       // is applied, and fails
)

func newFaulty(b leases.Backend) *faulty {
	return &faulty{Backend: b, script: make(map[op][]fault), down: make(map[op]fault), made: make(map[op][]call)}
}

func (f *faulty) next(o op, faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script[o] = faults
}

func (f *faulty) always(o op, as fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down[o] = as
}

// calls returns the calls that have ended.
func (f *faulty) calls(o op) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.made[o]...)
}

func (f *faulty) do(o op, apply func() error) (err error) {
	f.mu.Lock()
	began, as := time.Now(), f.down[o]
	if s := f.script[o]; len(s) > 0 {
		as, f.script[o] = s[0], s[1:]
	}
	lag := f.replyLag
	f.mu.Unlock()
	if as != unsent {
		err = apply()
		time.Sleep(lag)
	}
	if as != works {
		err = errStore
	}
	f.mu.Lock()
	f.made[o] = append(f.made[o], call{began, time.Now(), err != nil})
	f.mu.Unlock()
	return err
}

func (f *faulty) Acquire(ctx context.Context, c leases.Claim) (g leases.Grant, err error) {
	err = f.do(acquiring, func() (err error) {
		g, err = f.Backend.Acquire(ctx, c)
		return err
	})
	if err != nil {
		return leases.Grant{}, err
	}
	return g, nil
}

func (f *faulty) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (ok bool, err error) {
	err = f.do(refreshing, func() (err error) {
		ok, err = f.Backend.Refresh(ctx, h, ttl)
		return err
	})
	return ok && err == nil, err
}

func (f *faulty) Release(ctx context.Context, h leases.Hold) (ok bool, err error) {
	err = f.do(releasing, func() (err error) {
		ok, err = f.Backend.Release(ctx, h)
		return err
	})
	return ok && err == nil, err
}
