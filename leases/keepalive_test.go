package leases_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// refreshTimes are those of the refreshes so far, counted from began.
func refreshTimes(b *scripted, began time.Time) (after []time.Duration) {
	for _, c := range b.calls("refresh") {
		after = append(after, c.began.Sub(began))
	}
	return after
}

// A goroutine that outlived its hold would fail these tests: synctest allows
// none that is left.

func TestR10_RefreshesAtAThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("acquire", step{lag: time.Second})
		b.next("refresh", step{}, step{lag: 4 * time.Second})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		began := time.Now()
		require.NoError(t, h.Acquire(t.Context()))
		time.Sleep(time.Until(began.Add(time.Minute)) - time.Second)
		require.Equal(t, []time.Duration{10e9, 20e9, 30e9, 40e9, 50e9}, refreshTimes(b, began),
			"counted from before each request, however long it took")
		for _, c := range b.calls("refresh") {
			require.Equal(t, 30*time.Second, c.ttl)
		}
		require.NoError(t, h.Release(t.Context()))
		time.Sleep(time.Hour)
		require.Len(t, b.calls("refresh"), 5)
	})
}

func TestR10_IsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 30*time.Second, leases.On(b))
		require.NoError(t, h.Acquire(t.Context()))
		<-h.Lost()
		require.Empty(t, b.calls("refresh"))
	})
}

// TestR10_OutlivesTheCtxOfAcquire: a hold is not bound to the call that got it.
func TestR10_OutlivesTheCtxOfAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, h.Acquire(ctx))
		time.Sleep(time.Hour)
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestR10_RefreshForMovesTheNextRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		began := time.Now()
		require.NoError(t, h.Acquire(t.Context()))
		require.NoError(t, h.RefreshFor(t.Context(), 3*time.Second)) // kept all the same
		time.Sleep(2 * time.Second)
		require.Equal(t, []time.Duration{0, 1e9}, refreshTimes(b, began))
		require.Equal(t, began.Add(31*time.Second), h.Deadline())

		require.NoError(t, h.RefreshFor(t.Context(), time.Hour)) // not shortened
		time.Sleep(time.Hour - 21*time.Second)
		require.Len(t, b.calls("refresh"), 3)
		time.Sleep(2 * time.Second)
		require.Len(t, b.calls("refresh"), 4, "when 20 s were left")
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestR10_AnErrorIsRetriedUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.always("refresh", step{err: errStore, unsent: true})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		began := time.Now()
		err := h.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			require.Equal(t, 30*time.Second, time.Since(began), "not earlier")
			return nil
		})
		require.ErrorIs(t, err, leases.ErrLost)
		tries := refreshTimes(b, began)
		require.Equal(t, 10*time.Second, tries[0])
		for i := 1; i < len(tries); i++ {
			require.LessOrEqual(t, tries[i]-tries[i-1], time.Second)
		}
		require.Greater(t, tries[len(tries)-1], 28*time.Second)
		time.Sleep(time.Hour)
		require.Len(t, b.calls("refresh"), len(tries), "and then no more")
	})
}

func TestR10_AnErrorIsNoLossOnceARefreshWorksAgain(t *testing.T) {
	for _, failing := range []step{{err: errStore, unsent: true}, {err: errStore}} {
		synctest.Test(t, func(t *testing.T) {
			b := newScripted()
			b.next("refresh", failing, failing, failing, step{}, failing)
			h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
			require.NoError(t, h.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(5 * time.Minute)
				return ctx.Err()
			}))
		})
	}
}

// TestR10_AReplyThatNeverComesLeavesTimeToTryAgain, and to keep the hold.
func TestR10_AReplyThatNeverComesLeavesTimeToTryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("refresh", step{hangs: true, unsent: true})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		require.NoError(t, h.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(5 * time.Minute)
			return ctx.Err()
		}))
	})
}

func TestR10_ARefusalIsALossAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("refresh", step{}, step{refused: true})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		began := time.Now()
		err := h.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			require.Equal(t, 20*time.Second, time.Since(began))
			require.ErrorIs(t, context.Cause(ctx), leases.ErrLost)
			return nil
		})
		require.ErrorIs(t, err, leases.ErrLost)
		time.Sleep(time.Hour)
		require.Len(t, b.calls("refresh"), 2)
	})
}

func TestR10_ReleaseEndsARefreshThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.always("refresh", step{hangs: true, unsent: true})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		require.NoError(t, h.Acquire(t.Context()))
		time.Sleep(15 * time.Second)
		began := time.Now()
		require.NoError(t, h.Release(t.Context()))
		require.Zero(t, time.Since(began))
	})
}

// TestR10_AFailedReleaseIsNotKeptAlive: it was given up.
func TestR10_AFailedReleaseIsNotKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("release", step{err: errStore, unsent: true})
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		began := time.Now()
		require.NoError(t, h.Acquire(t.Context()))
		require.ErrorIs(t, h.Release(t.Context()), errStore)
		<-h.Lost()
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Empty(t, b.calls("refresh"))
	})
}

func TestR10_DetachEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 30*time.Second, leases.On(b), leases.KeepAlive())
		h.Detach() // nothing to detach yet
		began := time.Now()
		require.NoError(t, h.Do(t.Context(), func(context.Context) error {
			time.Sleep(15 * time.Second)
			h.Detach()
			return nil
		}))
		require.Equal(t, began.Add(40*time.Second), h.Deadline(), "Do leaves it to its TTL")
		require.Empty(t, b.calls("release"))
		require.False(t, b.free(t, "x"))
		<-h.Lost()
		require.Equal(t, 40*time.Second, time.Since(began))
		require.True(t, b.free(t, "x"))
		require.Len(t, b.calls("refresh"), 1)
	})
}
