package leasetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func confirmed(t *testing.T, s store) {
	t.Run("a_refused_attempt_leaves_nothing", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			name := newName()
			claim := func(owner string) leases.Claim {
				return leases.Claim{Name: name, Slots: k.slots, Owner: owner, TTL: long}
			}
			a := s.hold(t, "R6", claim("a"))
			for range 3 {
				s.busy(t, "R6", claim("b"))
			}
			b := leases.Hold{Name: name, Slots: k.slots, Owner: "b"}
			s.notRefreshed(t, "R6", b, "it was refused")
			s.notReleased(t, "R6", b, "it was refused")
			s.refreshed(t, "R6", a.Hold, long)
			s.released(t, "R6", a.Hold)
			s.notRefreshed(t, "R6", b, "it was refused, and has not asked again")
			s.hold(t, "R6", claim("c"))
		}
	})
	t.Run("ctx_had_ended", func(t *testing.T) {
		t.Parallel()
		ctxHadEnded(t, s)
	})
	t.Run("ctx_ends_on_the_way", func(t *testing.T) {
		t.Parallel()
		ctxEndsOnTheWay(t, s)
	})
	forKinds(t, func(t *testing.T, slots int) {
		t.Run("acquire_fails", func(t *testing.T) { acquireFails(t, s, slots) })
		t.Run("refresh_fails", func(t *testing.T) { refreshFails(t, s, slots) })
		t.Run("release_fails", func(t *testing.T) { releaseFails(t, s, slots) })
	})
}

// ctxHadEnded: nothing that was asked for with an ended ctx is applied.
func ctxHadEnded(t *testing.T, s store) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		for _, k := range kinds {
			c := leases.Claim{Name: newName(), Slots: k.slots, Owner: "a", TTL: long}
			g, err := s.Acquire(ctx, c)
			require.ErrorIs(t, err, ctx.Err(), "R6: Acquire with a ctx that has ended")
			require.Zero(t, g, "R6: an error comes with no grant")

			c.Owner = "b"
			b := s.hold(t, "R6", c)
			ok, err := s.Refresh(ctx, b.Hold, time.Millisecond)
			require.ErrorIs(t, err, ctx.Err(), "R6: Refresh with a ctx that has ended")
			require.False(t, ok, "R6: an error does not say true")
			ok, err = s.Release(ctx, b.Hold)
			require.ErrorIs(t, err, ctx.Err(), "R6: Release with a ctx that has ended")
			require.False(t, ok, "R6: an error does not say true")
			s.refreshed(t, "R6", b.Hold, long)

			h := s.handle(newName(), k.slots, long)
			require.ErrorIs(t, h.Acquire(ctx), ctx.Err(), "R6")
			ok, err = h.TryAcquire(ctx)
			require.ErrorIs(t, err, ctx.Err(), "R6")
			require.False(t, ok, "R6")
			require.Zero(t, h.Fence(), "R6: not held")
		}
	}
}

// ctxEndsOnTheWay: whether the store has applied it or not, a handle whose
// Acquire failed does not hold, and its random token does not hold either.
func ctxEndsOnTheWay(t *testing.T, s store) {
	sent := time.Now()
	s.hold(t, "R6", leases.Claim{Name: newName(), Owner: "a", TTL: long})
	roundTrip := max(time.Since(sent), 50*time.Microsecond)
	for i := range 30 {
		name, slots := newName(), i%2
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*roundTrip))
		h := s.handle(name, slots, long)
		err := h.Acquire(ctx)
		cancel()
		if err == nil {
			require.NoError(t, h.Refresh(bounded(t)), "R6: Acquire returns nil only once held")
			require.NoError(t, h.Release(bounded(t)), "R6")
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded, "R6: the error of a ctx that ended on the way")
		require.Zero(t, h.Deadline(), "R6: a failed Acquire holds nothing")
		s.becomesFree(t, "R6", name, slots)
	}
}

func acquireFails(t *testing.T, s store, slots int) {
	for _, how := range []fault{unsent, replyLost} {
		name, ctx := newName(), bounded(t)
		f := newFaulty(s.Backend)
		broken := store{f}

		h := broken.handle(name, slots, long)
		check := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, errStore, "R6: the store's error propagates")
			require.NotErrorIs(t, err, leases.ErrNotAcquired, "R6: a failure is not 'busy'")
			require.Contains(t, err.Error(), "acquire", "R6: the error says what was tried")
			require.Contains(t, err.Error(), name, "R6: the error names the name")
			require.Zero(t, h.Deadline(), "R6: what was not confirmed is not held")
		}
		f.next(acquiring, how)
		check(h.Acquire(ctx))
		s.becomesFree(t, "R6", name, slots)

		f.next(acquiring, how)
		ok, err := h.TryAcquire(ctx)
		require.False(t, ok, "R6")
		check(err)
		s.becomesFree(t, "R6", name, slots)

		f.next(acquiring, how)
		check(h.Do(ctx, func(context.Context) error {
			require.Fail(t, "R6: Do runs nothing that is not held")
			return nil
		}))
		s.becomesFree(t, "R6", name, slots)

		require.NoError(t, h.Acquire(ctx), "R6: the handle works once the store does")
		require.NoError(t, h.Release(ctx))

		// While it waits for another holder.
		other := s.hold(t, "R6", leases.Claim{Name: name, Slots: slots, Owner: "other", TTL: long})
		f.next(acquiring, works, works, how)
		check(h.Acquire(ctx))
		s.released(t, "R6", other.Hold)
		s.becomesFree(t, "R6", name, slots)
	}

	// An explicit owner's hold is left for its retry.
	name, ctx := newName(), bounded(t)
	f := newFaulty(s.Backend)
	h := store{f}.handle(name, slots, long, leases.Owner("task"))
	f.next(acquiring, replyLost)
	require.ErrorIs(t, h.Acquire(ctx), errStore, "R6")
	require.Zero(t, h.Deadline(), "R6: what was not confirmed is not held")
	s.busy(t, "R6", leases.Claim{Name: name, Slots: slots, Owner: "b", TTL: long})
	require.NoError(t, h.Acquire(ctx), "R6: the retry re-acquires it")
	require.NoError(t, h.Release(ctx))
	s.becomesFree(t, "R6", name, slots)
}

func refreshFails(t *testing.T, s store, slots int) {
	for _, how := range []fault{unsent, replyLost} {
		name, ctx := newName(), bounded(t)
		f := newFaulty(s.Backend)
		h := store{f}.handle(name, slots, long)
		require.NoError(t, h.Acquire(ctx))
		before := h.Deadline()
		f.next(refreshing, how)
		err := h.Refresh(ctx)
		require.ErrorIs(t, err, errStore, "R6: the store's error propagates")
		require.NotErrorIs(t, err, leases.ErrLost, "R6: a failure is not a loss")
		require.Contains(t, err.Error(), name, "R6: the error names the name")
		require.Equal(t, before, h.Deadline(), "R6: a refresh that was not confirmed moves nothing")
		require.NoError(t, h.Refresh(ctx), "R6: the hold is still there")
		require.NoError(t, h.Release(ctx))
	}
}

// releaseFails is case 18 as well: a release that was applied before its reply
// was lost is no loss when it is asked for again.
func releaseFails(t *testing.T, s store, slots int) {
	for _, how := range []fault{unsent, replyLost} {
		name, ctx := newName(), bounded(t)
		f := newFaulty(s.Backend)
		h := store{f}.handle(name, slots, long)
		require.NoError(t, h.Acquire(ctx))
		f.next(releasing, how)
		err := h.Release(ctx)
		require.ErrorIs(t, err, errStore, "R6: the store's error propagates")
		require.NotErrorIs(t, err, leases.ErrLost, "R6: a failure is not a loss")
		require.Contains(t, err.Error(), name, "R6: the error names the name")
		require.NoError(t, h.Release(ctx), "R6: released at the second try, not lost")
		s.becomesFree(t, "R6", name, slots)
	}
}
