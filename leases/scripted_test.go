package leases_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

var errStore = errors.New("the store does not answer")

// scripted is a store behind a network: its calls take time, and fail before
// they are applied or after. What it applies is applied in process.
type scripted struct {
	leases.Backend

	mu    sync.Mutex
	steps map[string][]step
	down  map[string]*step // every call after the steps
	made  []call
}

// step is how one call goes.
type step struct {
	lag     time.Duration // until the reply, or the error
	err     error
	unsent  bool // the request is not applied
	refused bool // the store says that there is no such hold
	hangs   bool // the reply never comes: ctx ends the call
}

type call struct {
	op    string
	began time.Time
	hold  leases.Hold
	ttl   time.Duration
}

func newScripted() *scripted {
	return &scripted{Backend: leases.NewInProcess(), steps: make(map[string][]step), down: make(map[string]*step)}
}

func (s *scripted) next(op string, steps ...step) { s.steps[op] = steps }

func (s *scripted) always(op string, as step) { s.down[op] = &as }

// calls returns the calls of op that have begun.
func (s *scripted) calls(op string) (made []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.made {
		if c.op == op {
			made = append(made, c)
		}
	}
	return made
}

func (s *scripted) do(ctx context.Context, c call, apply func() error) (refused bool, err error) {
	s.mu.Lock()
	c.began = time.Now()
	s.made = append(s.made, c)
	var now step
	if next := s.steps[c.op]; len(next) > 0 {
		now, s.steps[c.op] = next[0], next[1:]
	} else if s.down[c.op] != nil {
		now = *s.down[c.op]
	}
	s.mu.Unlock()
	if now.refused {
		return true, nil
	}
	if !now.unsent {
		err = apply()
	}
	if now.hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	time.Sleep(now.lag)
	if now.err != nil {
		err = now.err
	}
	return false, err
}

func (s *scripted) Acquire(ctx context.Context, c leases.Claim) (g leases.Grant, err error) {
	h := leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner}
	_, err = s.do(ctx, call{op: "acquire", hold: h, ttl: c.TTL}, func() (err error) {
		g, err = s.Backend.Acquire(ctx, c)
		return err
	})
	if err != nil {
		return leases.Grant{}, err
	}
	return g, nil
}

func (s *scripted) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (ok bool, err error) {
	refused, err := s.do(ctx, call{op: "refresh", hold: h, ttl: ttl}, func() (err error) {
		ok, err = s.Backend.Refresh(ctx, h, ttl)
		return err
	})
	return ok && !refused && err == nil, err
}

func (s *scripted) Release(ctx context.Context, h leases.Hold) (ok bool, err error) {
	refused, err := s.do(ctx, call{op: "release", hold: h}, func() (err error) {
		ok, err = s.Backend.Release(ctx, h)
		return err
	})
	return ok && !refused && err == nil, err
}

// free reports whether somebody else can acquire the lease name now.
func (s *scripted) free(t *testing.T, name string) bool {
	t.Helper()
	g, err := s.Backend.Acquire(t.Context(), leases.Claim{Name: name, Owner: "somebody else", TTL: time.Hour})
	require.NoError(t, err)
	if g.Held {
		_, err = s.Backend.Release(t.Context(), leases.Hold{Name: name, Owner: "somebody else", Fence: g.Fence})
		require.NoError(t, err)
	}
	return g.Held
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
