package leases_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// TestR3_ARetryEndsTheOlderAttemptAtOnce: both run in this process, and the
// retry got the lease.
func TestR3_ARetryEndsTheOlderAttemptAtOnce(t *testing.T) {
	for _, slots := range []int{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			handle := func() *leases.Handle {
				if slots == 0 {
					return leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"), leases.KeepAlive())
				}
				return leases.Semaphore("x", slots, time.Hour, leases.On(b), leases.Owner("task"), leases.KeepAlive())
			}
			older, retry := handle(), handle()
			began := time.Now()
			running, ended := make(chan struct{}), make(chan error)
			go func() {
				ended <- older.Do(t.Context(), func(ctx context.Context) error {
					close(running)
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			<-running
			require.NoError(t, retry.Acquire(t.Context()))
			err := <-ended
			require.ErrorIs(t, err, leases.ErrLost)
			require.ErrorContains(t, err, "the same owner has acquired it again")
			require.Zero(t, time.Since(began))
			require.Less(t, older.Fence(), retry.Fence())
			require.Zero(t, older.Deadline())
			require.ErrorIs(t, older.Refresh(t.Context()), leases.ErrLost)
			require.ErrorIs(t, older.Release(t.Context()), leases.ErrLost)
			require.NoError(t, retry.Refresh(t.Context()))
			require.NoError(t, retry.Release(t.Context()))
		})
	}
}

// TestR3_TheLargerFenceWins when the answers come in another order than the
// grants.
func TestR3_TheLargerFenceWins(t *testing.T) {
	for _, oneHandle := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			first := leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"), leases.KeepAlive())
			second := first
			if !oneHandle {
				second = leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"), leases.KeepAlive())
			}
			b.next("acquire", step{lag: 2 * time.Second}, step{lag: time.Second})
			answered := make(chan error)
			go func() { answered <- first.Acquire(t.Context()) }()
			synctest.Wait() // applied, but not answered
			require.NoError(t, second.Acquire(t.Context()))
			fence := second.Fence()
			require.NoError(t, <-answered)
			require.Equal(t, fence, second.Fence())
			require.NoError(t, second.Refresh(t.Context()), "the later grant is the one that holds")
			if !oneHandle {
				require.Less(t, first.Fence(), fence)
				require.ErrorIs(t, first.Refresh(t.Context()), leases.ErrLost)
			}
			require.NoError(t, second.Release(t.Context()))
		})
	}
}

// TestR3_OtherOwnersNamesAndBackendsAreLeftAlone by a takeover.
func TestR3_OtherOwnersNamesAndBackendsAreLeftAlone(t *testing.T) {
	b, other := newScripted(), newScripted()
	handle := func(b leases.Backend, name, owner string) *leases.Handle {
		return leases.Semaphore(name, 4, time.Hour, leases.On(b), leases.Owner(owner))
	}
	kept := []*leases.Handle{handle(b, "x", "b"), handle(b, "y", "a"), handle(other, "x", "a")}
	for _, h := range append(kept, handle(b, "x", "a"), handle(b, "x", "a")) {
		require.NoError(t, h.Acquire(t.Context()))
	}
	for _, h := range kept {
		require.False(t, closed(h.Lost()))
		require.NoError(t, h.Release(t.Context()))
	}
}

func TestR4_AHandleMayBeAcquiredWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := leases.Lease("x", time.Hour, leases.On(newScripted()), leases.KeepAlive())
		require.NoError(t, h.Acquire(t.Context()))
		lost, fence := h.Lost(), h.Fence()
		require.NoError(t, h.Acquire(t.Context()))
		require.True(t, closed(lost))
		require.Greater(t, h.Fence(), fence)
		require.False(t, closed(h.Lost()))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestR14_TheBackendIsLookedUpAtAcquire(t *testing.T) {
	before := leases.Default()
	t.Cleanup(func() { leases.Configure(before) })
	first, second := newScripted(), newScripted()
	h := leases.Lease("x", time.Hour)
	leases.Configure(first)
	require.Same(t, first, leases.Default())
	require.NoError(t, h.Acquire(t.Context()))
	leases.Configure(second)
	require.NoError(t, h.Refresh(t.Context()))
	require.NoError(t, h.Release(t.Context()), "the hold stays with its backend")
	require.Len(t, first.calls("release"), 1)
	require.NoError(t, h.Acquire(t.Context()))
	require.Len(t, second.calls("acquire"), 1)

	leases.Configure(nil)
	fresh := leases.Default()
	require.NotNil(t, fresh)
	require.NotSame(t, second, fresh)
	require.NoError(t, leases.Lease("x", time.Hour, leases.NonBlocking()).Acquire(t.Context()), "a fresh one: nobody holds it there")
	leases.Configure(nil)
	require.NotSame(t, fresh, leases.Default())
}

func TestR14_NothingToEndBeforeTheFirstAcquire(t *testing.T) {
	b := newScripted()
	h := leases.Lease("x", time.Hour, leases.On(b))
	require.Equal(t, "x", h.Name())
	require.NotEmpty(t, h.Token())
	require.ErrorIs(t, h.Refresh(t.Context()), leases.ErrLost)
	require.ErrorIs(t, h.RefreshFor(t.Context(), time.Minute), leases.ErrLost)
	require.ErrorIs(t, h.Release(t.Context()), leases.ErrLost)
	require.Empty(t, append(b.calls("refresh"), b.calls("release")...))
}

// byValue can't be compared, and so can't be a map's key.
type byValue struct {
	leases.Backend
	_ []int
}

func TestR14_ABackendMayBeOfAnyType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := byValue{Backend: leases.NewInProcess()}
		first := leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"), leases.KeepAlive())
		retry := leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"))
		require.NoError(t, first.Acquire(t.Context()))
		require.NoError(t, retry.Acquire(t.Context()))
		require.ErrorIs(t, first.Refresh(t.Context()), leases.ErrLost, "the store tells")

		waited := make(chan error)
		waiter := leases.Lease("x", time.Hour, leases.On(b))
		go func() { waited <- waiter.Acquire(t.Context()) }()
		time.Sleep(time.Minute)
		require.NoError(t, retry.Release(t.Context()))
		require.NoError(t, <-waited, "the back-off finds it free")
		require.NoError(t, waiter.Release(t.Context()))

		before := leases.Default()
		leases.Configure(b)
		defer leases.Configure(before)
		require.NoError(t, leases.Lease("y", time.Hour).Do(t.Context(), func(context.Context) error { return nil }))
	})
}
