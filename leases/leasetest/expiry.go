package leasetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func expiry(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		claim := func(owner string, ttl time.Duration) leases.Claim {
			return leases.Claim{Name: newName(), Slots: slots, Owner: owner, TTL: ttl}
		}
		by := func(h granted, owner string) leases.Claim {
			return leases.Claim{Name: h.Name, Slots: slots, Owner: owner, TTL: long}
		}

		// Everything that is to expire runs its TTL at the same time.
		refreshes := s.hold(t, "R2", claim("a", short))
		releases := s.hold(t, "R2", claim("a", short))
		returns := s.hold(t, "R2", claim("a", short))
		shortened := s.hold(t, "R2", claim("a", long))
		s.refreshed(t, "R2", shortened.Hold, short)
		shortened.ttl, shortened.answered = short, time.Now()
		shortened.awaitExpiry() // the last to be answered

		const why = "its TTL has passed"
		s.notRefreshed(t, "R2", refreshes.Hold, why)
		s.notRefreshed(t, "R2", anyFence(refreshes.Hold), why)
		s.notReleased(t, "R2", releases.Hold, why)
		s.notReleased(t, "R2", anyFence(releases.Hold), why)
		s.notRefreshed(t, "R2", shortened.Hold, "it was refreshed for a shorter time, and that has passed")
		s.hold(t, "R2", by(shortened, "b"))
		s.hold(t, "R2", by(refreshes, "b"))
		s.hold(t, "R2", by(releases, "b"))
		s.notRefreshed(t, "R2", releases.Hold, "its TTL has passed and another owner holds the name")
		s.notReleased(t, "R2", releases.Hold, "its TTL has passed and another owner holds the name")
		s.busy(t, "R2", by(releases, "c"))

		again := s.hold(t, "R2", by(returns, "a"))
		s.notRefreshed(t, "R2", returns.Hold, "it had expired before the owner acquired the name again")
		s.notReleased(t, "R2", returns.Hold, "it had expired before the owner acquired the name again")
		s.refreshed(t, "R2", again.Hold, long)
	})

	t.Run("refused_attempts_prolong_nothing", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			h := s.hold(t, "R2", leases.Claim{Name: newName(), Slots: k.slots, Owner: "a", TTL: short})
			other := leases.Claim{Name: h.Name, Slots: k.slots, Owner: "b", TTL: long}
			for time.Until(h.answered.Add(short+coarse)) > 0 {
				if g := s.acquire(t, other); g.Held {
					require.False(t, h.surelyLive(), "R2: granted to another before the TTL had passed")
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			require.True(t, s.acquire(t, other).Held, "R2: the TTL has passed since the hold was granted; refused attempts don't prolong it")
		}
	})

	t.Run("a_refresh_moves_it", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			inTime(t, short, func(ttl time.Duration) bool {
				h := s.hold(t, "R2", leases.Claim{Name: newName(), Slots: k.slots, Owner: "a", TTL: ttl})
				ok, err := s.Refresh(bounded(t), h.Hold, long)
				require.NoError(t, err)
				if !ok && !h.surelyLive() {
					return false
				}
				require.True(t, ok, "R2: the TTL has not passed, so the holder can refresh")
				h.awaitExpiry()
				s.busy(t, "R2", leases.Claim{Name: h.Name, Slots: k.slots, Owner: "b", TTL: long})
				s.refreshed(t, "R2", h.Hold, long)
				s.released(t, "R2", h.Hold)
				return true
			})
		}
	})

	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		name, ctx := newName(), bounded(t)
		h, _ := s.heldShortly(t, "R2", name, 0)
		lost := h.Lost()
		select {
		case <-lost:
		case <-ctx.Done():
			require.Fail(t, "R2: Lost must be closed when the TTL has passed")
		}
		require.Zero(t, h.Deadline(), "R2: a handle whose TTL has passed is not held")
		require.ErrorIs(t, h.Refresh(ctx), leases.ErrLost, "R2")
		require.ErrorIs(t, h.Release(ctx), leases.ErrLost, "R2")
		s.becomesFree(t, "R2", name, 0)
	})
}

// case04 is solid_queue #761: a second release counted as another free slot.
func case04(t *testing.T, s store) {
	const most = 2
	name := newName()
	claim := func(i int, ttl time.Duration) leases.Claim {
		return leases.Claim{Name: name, Slots: most, Owner: owner(i), TTL: ttl}
	}
	full := func(why string) {
		t.Helper()
		g := s.acquire(t, claim(100, long))
		require.False(t, g.Held, "Case04: %s: there are more holders than slots", why)
	}
	first, late := s.hold(t, "Case04", claim(0, long)), s.hold(t, "Case04", claim(1, short))
	full("filled")

	s.released(t, "Case04", first.Hold)
	third := s.hold(t, "Case04", claim(2, long))
	late.awaitExpiry()
	fourth := s.hold(t, "Case04", claim(3, long))
	full("filled again")

	for range 3 {
		s.notReleased(t, "Case04", first.Hold, "it has released already")
		s.notReleased(t, "Case04", anyFence(first.Hold), "it has released already")
		full("released twice")
		s.notReleased(t, "Case04", late.Hold, "its TTL has passed")
		s.notReleased(t, "Case04", anyFence(late.Hold), "its TTL has passed")
		full("released late")
	}

	taken := s.hold(t, "Case04", claim(2, long)) // a retry takes its own hold over
	s.notReleased(t, "Case04", third.Hold, "the retry has the slot now")
	full("released after a takeover")
	for _, h := range []granted{taken, fourth} {
		s.refreshed(t, "Case04", h.Hold, long)
	}

	ctx := bounded(t)
	h := s.handle(newName(), most, long)
	require.NoError(t, h.Acquire(ctx))
	require.NoError(t, h.Release(ctx))
	require.ErrorIs(t, h.Release(ctx), leases.ErrLost, "Case04: the second release says that there was nothing to release")
}

// case10 is redsync #158 and #144.
func case10(t *testing.T, s store) {
	for _, k := range kinds {
		name, ctx := newName(), bounded(t)
		h, ttl := s.heldShortly(t, "Case10", name, k.slots)
		time.Sleep(time.Until(h.Deadline()))
		for range 2 {
			err := h.Refresh(ctx)
			require.ErrorIs(t, err, leases.ErrLost, "Case10: %s", k.name)
			require.Regexp(t, `TTL passed|expired`, err.Error(), "Case10: the error says that it expired")
			require.Contains(t, err.Error(), name, "Case10: the error names the name")
		}
		inTime(t, ttl, func(time.Duration) bool {
			began, err := time.Now(), h.Acquire(ctx)
			if err == nil {
				err = h.Refresh(ctx)
			}
			if err != nil && time.Since(began) >= ttl {
				return false
			}
			require.NoError(t, err, "Case10: the handle works again after a new acquire")
			return true
		})
	}
}

// case15 is redisson #2045: here the process is gone and nothing releases.
func case15(t *testing.T, s store) {
	for _, most := range []int{0, 1, 4} {
		name := newName()
		claim := func(i int, ttl time.Duration) leases.Claim {
			return leases.Claim{Name: name, Slots: most, Owner: owner(i), TTL: ttl}
		}
		n := max(most, 1)
		inTime(t, 2*short, func(ttl time.Duration) bool {
			var first, last granted
			for i := range n {
				last = s.hold(t, "Case15", claim(i, ttl))
				if i == 0 {
					first = last
				}
			}
			g := s.acquire(t, claim(n, long))
			if !first.surelyLive() {
				s.Release(bounded(t), leases.Hold{Name: name, Slots: most, Owner: owner(n)})
				last.awaitExpiry()
				return false
			}
			require.False(t, g.Held, "Case15: the dead still hold until their TTL has passed")
			last.awaitExpiry()
			return true
		})
		for i := range n {
			s.hold(t, "Case15", claim(100+i, long))
		}
		s.busy(t, "Case15", claim(200, long))
	}
}
