package leasetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// The clock in microseconds since 1970 passed this in 2020.
const year2020 = 1_577_836_800_000_000

func fence(t *testing.T, s store) {
	t.Run("grows_with_every_grant", func(t *testing.T) {
		t.Parallel()
		name := newName()
		var last granted
		grant := func(slots int, owner string, ttl time.Duration) granted {
			t.Helper()
			h := s.hold(t, "R5", leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: ttl})
			require.Greater(t, h.Fence, last.Fence, "R5: the fence grows with every grant of the name")
			last = h
			return h
		}
		grant(0, "a", long)
		grant(0, "a", long) // re-acquired
		s.released(t, "R5", last.Hold)
		grant(0, "a", long) // after a release
		s.released(t, "R5", last.Hold)
		grant(0, "b", short)
		last.awaitExpiry()
		grant(0, "c", long) // after an expiry
		s.released(t, "R5", last.Hold)
		first := grant(2, "a", long) // as the other kind
		second := grant(2, "b", long)
		s.released(t, "R5", first.Hold)
		grant(2, "c", long) // in the slot of another
		s.released(t, "R5", last.Hold)
		grant(2, "c", long)
		s.released(t, "R5", last.Hold)
		s.released(t, "R5", second.Hold)
		grant(5, "d", short) // the slots changed
		last.awaitExpiry()
		grant(0, "a", long) // and back
	})

	t.Run("is_near_the_stores_clock", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			c := leases.Claim{Name: newName(), Slots: k.slots, Owner: "a", TTL: long}
			first := s.hold(t, "R5", c)
			const grants = 50
			var last granted
			for range grants {
				last = s.hold(t, "R5", c)
			}
			require.Greater(t, first.Fence, int64(year2020), "R5: a %s's fence is the store's clock in microseconds since 1970, or more", k.name)
			require.Less(t, last.Fence, int64(1)<<53, "R5: a %s's fence fits a JSON number", k.name)
			// The store's clock may be wrong by hours, but not the pace.
			day := 24 * time.Hour.Microseconds()
			require.Less(t, first.Fence, time.Now().UnixMicro()+day, "R5: a %s's first fence is not ahead of the clock", k.name)
			pace := last.answered.Sub(first.sent) + time.Second
			require.LessOrEqual(t, last.Fence-first.Fence, pace.Microseconds()+grants,
				"R5: a %s's fence grows by 1, or with the clock", k.name)
		}
	})

	for _, k := range []struct {
		name  string
		slots int
	}{{"lease", 0}, {"semaphore", 3}} {
		t.Run("never_repeats/"+k.name, func(t *testing.T) {
			t.Parallel()
			ordered(t, stress(t, s, k.slots))
		})
	}

	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		name, ctx := newName(), bounded(t)
		h := s.handle(name, 0, long)
		require.Zero(t, h.Fence(), "R5: no fence before the first grant")
		last := int64(0)
		for range 3 {
			require.NoError(t, h.Acquire(ctx))
			require.Greater(t, h.Fence(), last, "R5")
			last = h.Fence()
			require.NoError(t, h.Release(ctx))
			require.Equal(t, last, h.Fence(), "R5: a handle keeps the fence of its latest hold")
		}
	})
}

// ordered fails the test when a grant that was asked for after another had
// been answered does not have the larger fence.
func ordered(t *testing.T, all []window) {
	t.Helper()
	slices.SortFunc(all, func(a, b window) int { return int(a.fence - b.fence) })
	earliest := time.Time{} // answer to any grant with a larger fence
	for i := len(all) - 1; i >= 0; i-- {
		if i > 0 {
			require.NotEqual(t, all[i-1].fence, all[i].fence, "R5: a fence repeats")
		}
		if !earliest.IsZero() {
			require.False(t, earliest.Before(all[i].sent), "R5: fence %d was granted after a larger one", all[i].fence)
		}
		if earliest.IsZero() || all[i].answered.Before(earliest) {
			earliest = all[i].answered
		}
	}
}
