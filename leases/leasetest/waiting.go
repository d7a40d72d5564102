package leasetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func waiting(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		t.Run("an_attempt_never_waits", func(t *testing.T) { attemptNeverWaits(t, s, slots) })
		t.Run("RetryAfter", func(t *testing.T) { retryAfter(t, s, slots) })
		t.Run("at_release", func(t *testing.T) { wakesAtRelease(t, s, slots) })
		t.Run("at_expiry", func(t *testing.T) { wakesAtExpiry(t, s, slots) })
		t.Run("in_turn", func(t *testing.T) { everyoneGetsATurn(t, s, slots) })
		t.Run("Wait_ends", func(t *testing.T) { waitEnds(t, s, slots) })
		t.Run("turns", func(t *testing.T) { turns(t, s, slots) })
		t.Run("ctx_ends", func(t *testing.T) { ctxEndsTheWait(t, s, slots) })
	})
	t.Run("RetryAfter_is_of_the_first_to_expire", func(t *testing.T) {
		t.Parallel()
		name := newName()
		claim := func(i int, ttl time.Duration) leases.Claim {
			return leases.Claim{Name: name, Slots: 3, Owner: owner(i), TTL: ttl}
		}
		s.hold(t, "R7", claim(0, long))
		first := s.hold(t, "R7", claim(1, long/4))
		s.hold(t, "R7", claim(2, long/2))
		remains(t, first, s.busy(t, "R7", claim(3, long)))
	})
}

func attemptNeverWaits(t *testing.T, s store, slots int) {
	c := leases.Claim{Name: newName(), Slots: slots, Owner: "a", TTL: long}
	a := s.hold(t, "R7", c)
	c.Owner = "b"
	ctx, cancel := context.WithTimeout(t.Context(), soon/2)
	defer cancel()
	g, err := s.Acquire(ctx, c)
	require.NoError(t, err, "R7: an attempt on a busy name is answered at once; it never waits for the holder")
	require.False(t, g.Held, "R7")
	s.released(t, "R7", a.Hold)
}

// remains checks RetryAfter against what first has left.
func remains(t *testing.T, first granted, g leases.Grant) {
	t.Helper()
	require.Positive(t, g.RetryAfter, "R7: RetryAfter of a busy name")
	require.LessOrEqual(t, g.RetryAfter, first.ttl, "R7: RetryAfter is not longer than the TTL of the holder that expires first")
	left := time.Until(first.sent.Add(first.ttl)) - coarse
	require.GreaterOrEqual(t, g.RetryAfter, left, "R7: RetryAfter is what the holder that expires first has left")
}

func retryAfter(t *testing.T, s store, slots int) {
	c := leases.Claim{Name: newName(), Slots: slots, Owner: "a", TTL: long}
	b := c
	b.Owner = "b"
	h := s.hold(t, "R7", c)
	remains(t, h, s.busy(t, "R7", b))

	sent := time.Now()
	s.refreshed(t, "R7", h.Hold, long/2)
	h.ttl, h.sent = long/2, sent
	remains(t, h, s.busy(t, "R7", b))

	ctx := bounded(t)
	err := s.handle(c.Name, slots, long, leases.NonBlocking()).Acquire(ctx)
	var busy *leases.NotAcquiredError
	require.ErrorAs(t, err, &busy, "R7")
	require.Equal(t, c.Name, busy.Name, "R7: the error names the name")
	remains(t, h, leases.Grant{RetryAfter: busy.RetryAfter})
}

// waiter acquires in a goroutine, and tells how that ended.
func waiter(ctx context.Context, h *leases.Handle) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- h.Acquire(ctx) }()
	return ended
}

// stillWaiting gives a waiter time to begin.
func stillWaiting(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		require.Fail(t, "R7: the name is busy, so the waiter waits", "it ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

func wakesAtRelease(t *testing.T, s store, slots int) {
	name, ctx := newName(), bounded(t)
	here := s.handle(name, slots, long)
	require.NoError(t, here.Acquire(ctx))
	h := s.handle(name, slots, long)
	ended := waiter(ctx, h)
	stillWaiting(t, ended)
	require.NoError(t, here.Release(ctx))
	require.NoError(t, <-ended, "R7: a waiter acquires soon after the release of a holder with a TTL of %v", long)
	require.NoError(t, h.Release(ctx))

	elsewhere := s.hold(t, "R7", leases.Claim{Name: name, Slots: slots, Owner: "elsewhere", TTL: long})
	ended = waiter(ctx, h)
	stillWaiting(t, ended)
	s.released(t, "R7", elsewhere.Hold) // unknown to the handles of this process
	require.NoError(t, <-ended, "R7: a waiter acquires soon after another process's release, without any wake-up")
	require.NoError(t, h.Release(ctx))
}

func wakesAtExpiry(t *testing.T, s store, slots int) {
	name, ctx := newName(), bounded(t)
	dead := s.hold(t, "R7", leases.Claim{Name: name, Slots: slots, Owner: "dead", TTL: short})
	h := s.handle(name, slots, long)
	require.NoError(t, h.Acquire(ctx), "R7: a waiter acquires when the holder has expired")
	require.False(t, dead.surelyLive(), "R7: and not before")
	require.NoError(t, h.Release(ctx))
}

func everyoneGetsATurn(t *testing.T, s store, slots int) {
	name, ctx := newName(), bounded(t)
	first := s.handle(name, slots, long)
	require.NoError(t, first.Acquire(ctx))
	released := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() { released <- first.Release(ctx) })
	concurrently(t, 8, func(int) error {
		h := s.handle(name, slots, long)
		if err := h.Acquire(ctx); err != nil {
			return err
		}
		return h.Release(ctx)
	})
	require.NoError(t, <-released)
}

func waitEnds(t *testing.T, s store, slots int) {
	const waits = 60 * time.Millisecond
	var took time.Duration
	name, ctx := newName(), bounded(t)
	a := s.hold(t, "R7", leases.Claim{Name: name, Slots: slots, Owner: "a", TTL: long})
	for _, opts := range [][]leases.Option{
		{leases.NonBlocking()},
		{leases.Wait(0)},
		{leases.Wait(time.Hour), leases.NonBlocking()},
		{leases.Wait(waits)},
	} {
		began := time.Now()
		h := s.handle(name, slots, long, opts...)
		require.ErrorIs(t, h.Acquire(ctx), leases.ErrNotAcquired, "R7: the wait ends")
		require.NoError(t, ctx.Err(), "R7: the wait ends with Wait or NonBlocking, not with ctx")
		require.Zero(t, h.Deadline(), "R7: not held")
		took = time.Since(began)
	}
	require.GreaterOrEqual(t, took, waits, "R7: Wait(%v) waits that long for a busy name", waits)

	ok, err := s.handle(name, slots, long, leases.Wait(time.Hour)).TryAcquire(ctx)
	require.NoError(t, err, "R7: TryAcquire is one attempt, whatever the options say")
	require.False(t, ok, "R7")
	leftNothing(t, s, a)
}

// leftNothing shows that no wait that ended has left a claim of its own.
func leftNothing(t *testing.T, s store, holder granted) {
	t.Helper()
	s.released(t, "R7", holder.Hold)
	s.becomesFree(t, "R7", holder.Name, holder.Slots)
}

func ctxEndsTheWait(t *testing.T, s store, slots int) {
	name := newName()
	a := s.hold(t, "R7", leases.Claim{Name: name, Slots: slots, Owner: "a", TTL: long})

	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	err := s.handle(name, slots, long).Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "R7: the error is ctx's")

	why := errors.New("the server shuts down")
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	defer cancel2(nil)
	ended := waiter(ctx2, s.handle(name, slots, long, leases.Wait(time.Hour)))
	stillWaiting(t, ended)
	cancel2(why)
	select {
	case err = <-ended:
	case <-time.After(soon):
		require.Fail(t, "R7: a wait ends with its ctx")
	}
	require.ErrorIs(t, err, context.Canceled, "R7: the error is ctx's")
	require.ErrorIs(t, err, leases.ErrNotAcquired, "R7: and ErrNotAcquired")
	require.ErrorIs(t, err, why, "R7: and tells the cause")
	leftNothing(t, s, a)
}
