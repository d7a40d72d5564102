package leases_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestR8_DeadlineIsCountedFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 10*time.Second, leases.On(b))
		require.Zero(t, h.Deadline())

		b.next("acquire", step{lag: 3 * time.Second})
		sent := time.Now()
		require.NoError(t, h.Acquire(t.Context()))
		require.Equal(t, sent.Add(10*time.Second), h.Deadline())

		b.next("refresh", step{lag: 4 * time.Second})
		sent = time.Now()
		require.NoError(t, h.Refresh(t.Context()))
		require.Equal(t, sent.Add(10*time.Second), h.Deadline())

		require.NoError(t, h.Release(t.Context()))
		require.Zero(t, h.Deadline())
	})
}

func TestR8_DoIsCancelledAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("acquire", step{lag: 3 * time.Second})
		h := leases.Lease("x", 10*time.Second, leases.On(b))
		began := time.Now()
		err := h.Do(t.Context(), func(ctx context.Context) error {
			lost := h.Lost()
			<-ctx.Done()
			require.Equal(t, 10*time.Second, time.Since(began))
			require.ErrorIs(t, context.Cause(ctx), leases.ErrLost)
			require.ErrorContains(t, context.Cause(ctx), "TTL")
			require.True(t, closed(lost))
			require.Zero(t, h.Deadline())
			return nil
		})
		require.ErrorIs(t, err, leases.ErrLost)
		require.Empty(t, b.calls("release"), "there is nothing to release")
	})
}

func TestR8_ARefreshMovesTheDeadline(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h := leases.Lease("x", 10*time.Second, leases.On(newScripted()))
			err := h.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(9 * time.Second)
				refreshed := time.Now()
				require.NoError(t, h.RefreshFor(ctx, ttl))
				require.Equal(t, refreshed.Add(ttl), h.Deadline())
				<-ctx.Done()
				require.Equal(t, ttl, time.Since(refreshed))
				return nil
			})
			require.ErrorIs(t, err, leases.ErrLost)
		})
	}
}

// TestR8_ARefreshWithoutReplyMayHaveShortenedTheHold: the shorter of the two
// deadlines is believed.
func TestR8_ARefreshWithoutReplyMayHaveShortenedTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 10*time.Second, leases.On(b))
		began := time.Now()
		require.NoError(t, h.Acquire(t.Context()))

		b.next("refresh", step{err: errStore})
		require.ErrorIs(t, h.RefreshFor(t.Context(), time.Hour), errStore)
		require.Equal(t, began.Add(10*time.Second), h.Deadline(), "the longer one is not")

		b.next("refresh", step{err: errStore, lag: time.Second})
		require.ErrorIs(t, h.RefreshFor(t.Context(), 3*time.Second), errStore)
		require.Equal(t, began.Add(3*time.Second), h.Deadline())
		<-h.Lost()
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestR8_ARefreshThatIsAnsweredAfterTheDeadlineIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 10*time.Second, leases.On(b))
		began := time.Now()
		require.NoError(t, h.Acquire(t.Context()))
		lost := h.Lost()
		time.Sleep(8 * time.Second)

		b.next("refresh", step{lag: 5 * time.Second})
		answer := make(chan error)
		go func() { answer <- h.RefreshFor(t.Context(), time.Hour) }()
		<-lost
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, <-answer, leases.ErrLost)
		synctest.Wait()
		require.True(t, b.free(t, "x"), "nobody holds it for an hour")
	})
}

func TestR8_AGrantThatArrivesAfterItsTTLIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		h := leases.Lease("x", 10*time.Second, leases.On(b), leases.KeepAlive())
		token := h.Token()
		b.next("acquire", step{lag: 10 * time.Second})
		err := h.Acquire(t.Context())
		require.ErrorContains(t, err, "TTL")
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
		require.Zero(t, h.Deadline())
		require.Zero(t, h.Fence())
		require.NotEqual(t, token, h.Token())
		time.Sleep(time.Minute)
		require.Empty(t, b.calls("refresh"))
	})
}

func TestR8_LostIsForTheHoldItWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := leases.Lease("x", 10*time.Second, leases.On(newScripted()))
		require.Nil(t, h.Lost(), "before the first grant")
		require.NoError(t, h.Acquire(t.Context()))
		released := h.Lost()
		require.NoError(t, h.Release(t.Context()))
		require.False(t, closed(released), "a release is no loss")

		require.NoError(t, h.Acquire(t.Context()))
		expires := h.Lost()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, closed(expires))
		require.True(t, closed(h.Lost()), "asked for after the loss")
		require.False(t, closed(released))

		require.NoError(t, h.Acquire(t.Context()))
		require.False(t, closed(h.Lost()))
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestR8_ContextIsBoundToTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := leases.Lease("x", 10*time.Second, leases.On(newScripted()))
		ctx, cancel := h.Context(t.Context())
		require.ErrorIs(t, context.Cause(ctx), leases.ErrLost, "it is not held")
		cancel()

		require.NoError(t, h.Acquire(t.Context()))
		ctx, cancel = h.Context(t.Context())
		require.NoError(t, ctx.Err())
		inner, ok := leases.FromContext(ctx)
		require.True(t, ok)
		require.Same(t, h, inner)
		cancel()
		require.Equal(t, context.Canceled, context.Cause(ctx), "the work is over: no loss")

		expires, cancel := h.Context(t.Context())
		defer cancel()
		released, cancelReleased := h.Context(t.Context())
		<-expires.Done()
		require.ErrorIs(t, context.Cause(expires), leases.ErrLost)
		require.ErrorIs(t, context.Cause(released), leases.ErrLost)
		cancelReleased()

		require.NoError(t, h.Acquire(t.Context()))
		ctx, cancel = h.Context(t.Context())
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, ctx.Err(), "a release is no loss")
		cancel()
		ctx, cancel = h.Context(t.Context())
		require.ErrorIs(t, context.Cause(ctx), leases.ErrLost, "it is not held")
		cancel()
	})
}
