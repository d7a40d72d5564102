package leasetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func handles(t *testing.T, s store) {
	t.Run("concurrent", func(t *testing.T) {
		for _, k := range kinds {
			t.Run(k.name, func(t *testing.T) { concurrentUse(t, s, k.slots) })
		}
	})
	t.Run("reusable", func(t *testing.T) {
		for _, k := range kinds {
			name, ctx := newName(), bounded(t)
			h := s.handle(name, k.slots, long)
			require.Equal(t, name, h.Name(), "R14")
			require.NotEmpty(t, h.Token(), "R14: a random token")
			require.NotEqual(t, h.Token(), s.handle(name, k.slots, long).Token(), "R14: for each handle")
			require.ErrorIs(t, h.Refresh(ctx), leases.ErrLost, "R14: nothing to refresh before the first acquire")
			require.ErrorIs(t, h.Release(ctx), leases.ErrLost, "R14: nothing to release before the first acquire")
			for range 3 {
				require.NoError(t, h.Acquire(ctx), "R14: acquired again after a release")
				require.NotZero(t, h.Deadline(), "R14: held")
				require.NoError(t, h.Release(ctx), "R14")
				require.Zero(t, h.Deadline(), "R14: not held")
			}
			s.becomesFree(t, "R14", name, k.slots)
		}
	})
	t.Run("backend", func(t *testing.T) { backendOfAHold(t, s) })
}

// concurrentUse lets goroutines do everything at once to one handle.
func concurrentUse(t *testing.T, s store, slots int) {
	goroutines, storeCalls := 10_000, 600
	if testing.Short() {
		goroutines, storeCalls = 1_000, 200
	}
	every := goroutines / storeCalls
	name, ctx := newName(), bounded(t)
	h := s.handle(name, slots, long)
	connections := make(chan struct{}, 32)
	var acquired atomic.Int64
	concurrently(t, goroutines, func(i int) error {
		if i%every != 0 {
			if h.Name() != name || h.Token() == "" || h.Fence() < 0 {
				return errors.New("R14: a handle changes under its users")
			}
			_, _ = h.Deadline(), h.Lost()
			bound, cancel := h.Context(ctx)
			defer cancel()
			if got, ok := leases.FromContext(bound); !ok || got != h {
				return errors.New("R14: Context carries the handle")
			}
			return nil
		}
		connections <- struct{}{}
		defer func() { <-connections }()
		var err error
		switch i / every % 4 {
		case 0:
			var ok bool
			if ok, err = h.TryAcquire(ctx); ok {
				acquired.Add(1)
			}
		case 1:
			err = h.Refresh(ctx)
		case 2:
			err = h.Release(ctx)
		case 3:
			err = h.Do(ctx, func(context.Context) error { return nil })
			acquired.Add(1)
		}
		if errors.Is(err, leases.ErrLost) { // to another goroutine of this handle
			return nil
		}
		return err
	})
	require.Positive(t, acquired.Load())

	fence := h.Fence()
	require.NoError(t, h.Acquire(ctx), "R14: the handle still works")
	require.Greater(t, h.Fence(), fence, "R14: Fence was that of the latest grant")
	require.NoError(t, h.Refresh(ctx), "R14: the handle still works")
	require.NoError(t, h.Release(ctx), "R14: the handle still works")
	g := s.acquire(t, leases.Claim{Name: name, Slots: slots, Owner: "b", TTL: long})
	require.True(t, g.Held, "R14: %d goroutines left one hold at most, and that was released", goroutines)
}

// backendOfAHold replaces the process-wide backend while a handle is held.
func backendOfAHold(t *testing.T, s store) {
	before := leases.Default()
	defer leases.Configure(before)
	for _, k := range kinds {
		leases.Configure(s.Backend)
		ctx, h := bounded(t), leases.Lease(newName(), long, leases.NonBlocking())
		if k.slots > 0 {
			h = leases.Semaphore(newName(), k.slots, long, leases.NonBlocking())
		}
		require.NoError(t, h.Acquire(ctx))
		there := leases.Claim{Name: h.Name(), Slots: k.slots, Owner: "b", TTL: long}
		s.busy(t, "R14: acquired on the configured backend", there)

		leases.Configure(leases.NewInProcess())
		require.NoError(t, h.Refresh(ctx), "R14: a hold stays with its backend")
		require.NoError(t, h.Release(ctx), "R14: a hold stays with its backend")
		free := s.hold(t, "R14: released where it was held", there)

		require.NoError(t, h.Acquire(ctx), "R14: the next acquire looks the backend up: nobody holds it there")
		g, err := leases.Default().Acquire(ctx, there)
		require.NoError(t, err)
		require.False(t, g.Held, "R14: the next acquire looks the backend up")
		require.NoError(t, h.Release(ctx))

		leases.Configure(nil)
		require.NotNil(t, leases.Default(), "R14: Configure(nil) restores an in-process backend")
		require.NoError(t, h.Acquire(ctx), "R14")
		require.NoError(t, h.Release(ctx), "R14")
		s.refreshed(t, "R14", free.Hold, long)
	}
}
