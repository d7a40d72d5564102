package leases_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestR6_WhatMayHaveBeenAcquiredIsReleasedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", time.Hour, leases.On(b))
		token := h.Token()
		b.next("acquire", step{err: errStore})
		err := h.Acquire(t.Context())
		require.ErrorIs(t, err, errStore)
		require.EqualError(t, err, `leases: acquire "x": the store does not answer`)
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
		require.Zero(t, h.Deadline())
		require.NotEqual(t, token, h.Token(), "so that the release can't end a later hold")

		synctest.Wait()
		require.Equal(t, token, b.calls("release")[0].hold.Owner)
		require.True(t, b.free(t, "x"))
		require.NoError(t, h.Acquire(t.Context()))
		time.Sleep(time.Minute)
		require.NotZero(t, h.Deadline())
		require.NoError(t, h.Refresh(t.Context()), "the background release left it alone")
		require.NoError(t, h.Release(t.Context()))
	})
}

// TestR6_AnAttemptThatIsAppliedLateIsReleased: it was on its way when ctx
// ended, and the first release came before it.
func TestR6_AnAttemptThatIsAppliedLateIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", time.Hour, leases.On(b))
		late := leases.Claim{Name: "x", Owner: h.Token(), TTL: time.Hour}
		b.next("acquire", step{hangs: true, unsent: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Acquire(ctx), context.DeadlineExceeded)
		time.Sleep(200 * time.Millisecond)
		g, err := b.Backend.Acquire(t.Context(), late)
		require.NoError(t, err)
		require.True(t, g.Held)
		time.Sleep(10 * time.Second)
		require.True(t, b.free(t, "x"))
	})
}

func TestR6_TheBackgroundReleaseIsBounded(t *testing.T) {
	for _, down := range []step{{err: errStore, unsent: true}, {hangs: true, unsent: true}, {refused: true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			b.always("acquire", step{err: errStore, unsent: true})
			b.always("release", down)
			require.ErrorIs(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()), errStore)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			calls := len(b.calls("release"))
			require.NotZero(t, calls)
			require.LessOrEqual(t, calls, 20)
			time.Sleep(time.Hour)
			require.Len(t, b.calls("release"), calls)
		})
	}
}

// TestR6_ManyAttemptsThatFailAtOnceAreAllReleased: a server that shuts down
// cancels all its requests.
func TestR6_ManyAttemptsThatFailAtOnceAreAllReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const attempts = 300
		b := newScripted()
		b.always("acquire", step{err: errStore})
		b.always("release", step{lag: 20 * time.Millisecond})
		var all sync.WaitGroup
		for range attempts {
			all.Go(func() {
				err := leases.Semaphore("x", attempts, time.Hour, leases.On(b)).Acquire(t.Context())
				if !errors.Is(err, errStore) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		require.True(t, b.free(t, "x"), "as a lease: nobody holds a slot")
	})
}

func TestR6_AnExplicitOwnersHoldIsLeftForItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", time.Hour, leases.On(b), leases.Owner("task"))
		b.next("acquire", step{err: errStore})
		require.ErrorIs(t, h.Acquire(t.Context()), errStore)
		time.Sleep(time.Minute)
		require.Empty(t, b.calls("release"))
		require.Equal(t, "task", h.Token())
		require.False(t, b.free(t, "x"))
		require.NoError(t, h.Acquire(t.Context()))
		require.NoError(t, h.Release(t.Context()))
	})
}

// TestR6_WhatChangedNothingIsNotReleased: ErrKind and ErrInvalid say so.
func TestR6_WhatChangedNothingIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		for _, why := range []error{leases.ErrKind, leases.ErrInvalid} {
			h := leases.Lease("x", time.Hour, leases.On(b))
			token := h.Token()
			b.next("acquire", step{unsent: true, err: why})
			require.ErrorIs(t, h.Acquire(t.Context()), why)
			require.Equal(t, token, h.Token())
		}
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		h := leases.Lease("x", time.Hour, leases.On(b), leases.NonBlocking())
		token := h.Token()
		require.ErrorIs(t, h.Acquire(t.Context()), leases.ErrNotAcquired)
		require.Equal(t, token, h.Token())
		time.Sleep(time.Minute)
		require.Empty(t, b.calls("release"))
	})
}

// TestR6_AFailedAttemptOfAHandleThatIsHeldReleasesNothing: the same token
// holds.
func TestR6_AFailedAttemptOfAHandleThatIsHeldReleasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", time.Hour, leases.On(b))
		require.NoError(t, h.Acquire(t.Context()))
		token, fence := h.Token(), h.Fence()
		b.next("acquire", step{err: errStore, unsent: true})
		require.ErrorIs(t, h.Acquire(t.Context()), errStore)
		time.Sleep(time.Minute)
		require.Empty(t, b.calls("release"))
		require.Equal(t, token, h.Token())
		require.Equal(t, fence, h.Fence())
		require.NoError(t, h.Refresh(t.Context()))
		require.NoError(t, h.Release(t.Context()))
	})
}

// TestR6_TwoAttemptsOfAHandleAtOnce: the one that fails does not end what the
// other one got.
func TestR6_TwoAttemptsOfAHandleAtOnce(t *testing.T) {
	for _, failsFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			h := leases.Lease("x", time.Hour, leases.On(b))
			fails, works := step{err: errStore, unsent: true, lag: time.Second}, step{lag: 2 * time.Second}
			if !failsFirst {
				fails.lag = 3 * time.Second
			}
			b.next("acquire", fails, works)
			failed := make(chan error)
			go func() { failed <- h.Acquire(t.Context()) }()
			synctest.Wait()
			require.NoError(t, h.Acquire(t.Context()))
			require.ErrorIs(t, <-failed, errStore)
			time.Sleep(time.Minute)
			require.NoError(t, h.Refresh(t.Context()))
			require.Empty(t, b.calls("release"))
			require.NoError(t, h.Release(t.Context()))
		})
	}
}

func TestR6_ReleaseCanBeTriedAgain(t *testing.T) {
	for _, fails := range []step{{err: errStore}, {err: errStore, unsent: true}} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			h := leases.Lease("x", time.Hour, leases.On(b))
			require.NoError(t, h.Acquire(t.Context()))
			b.next("release", fails, fails)
			for range 2 {
				err := h.Release(t.Context())
				require.ErrorIs(t, err, errStore)
				require.EqualError(t, err, `leases: release "x": the store does not answer`)
				require.NotErrorIs(t, err, leases.ErrLost)
			}
			lost := h.Lost()
			require.NoError(t, h.Release(t.Context()), "it may have been applied the first time: that is no loss")
			require.False(t, closed(lost))
			require.True(t, b.free(t, "x"))
			require.ErrorIs(t, h.Release(t.Context()), leases.ErrLost, "there is nothing to release any more")
		})
	}
}

func TestR6_CtxsErrorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", time.Hour, leases.On(b))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		b.next("acquire", step{lag: 2 * time.Second, err: errStore}) // as a driver that hides ctx's error
		err := h.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errStore)
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
		time.Sleep(10 * time.Second)
		require.True(t, b.free(t, "x"))
	})
}
