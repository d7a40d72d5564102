package leasetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func identity(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		name := newName()
		claim := func(owner string) leases.Claim {
			return leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: long}
		}
		never := leases.Hold{Name: name, Slots: slots, Owner: "a"}
		s.notRefreshed(t, "R3", never, "it has never been held")
		s.notReleased(t, "R3", never, "it has never been held")

		a := s.hold(t, "R3", claim("a"))
		wrong := func(change func(h *leases.Hold), why string) {
			t.Helper()
			h := a.Hold
			change(&h)
			s.notRefreshed(t, "R3", h, why)
			s.notReleased(t, "R3", h, why)
			s.busy(t, "R3", claim("b"))
			s.refreshed(t, "R3", a.Hold, long)
		}
		wrong(func(h *leases.Hold) { h.Owner = "b" }, "another owner holds it")
		wrong(func(h *leases.Hold) { h.Owner, h.Fence = "b", 0 }, "another owner holds it")
		wrong(func(h *leases.Hold) { h.Owner = "A" }, "owners differ by case")
		wrong(func(h *leases.Hold) { h.Owner = "a " }, "owners differ by a space")
		wrong(func(h *leases.Hold) { h.Fence++ }, "the fence is not this hold's")
		wrong(func(h *leases.Hold) { h.Fence-- }, "the fence is not this hold's")
		wrong(func(h *leases.Hold) { h.Fence = 1 }, "the fence is not this hold's")
		wrong(func(h *leases.Hold) { h.Fence = 1 << 53 }, "the fence is not this hold's")

		retry := s.hold(t, "R3", claim("a"))
		for range 2 {
			s.notRefreshed(t, "R3", a.Hold, "a retry of the same owner has re-acquired it")
			s.notReleased(t, "R3", a.Hold, "a retry of the same owner has re-acquired it")
		}
		s.busy(t, "R3", claim("b"))
		s.refreshed(t, "R3", retry.Hold, long)
		s.refreshed(t, "R3", retry.Hold, long) // a refresh keeps the fence

		whichever := anyFence(retry.Hold)
		s.refreshed(t, "R3", whichever, long)
		s.released(t, "R3", whichever)
		for _, h := range []leases.Hold{whichever, retry.Hold} {
			s.notReleased(t, "R3", h, "it has been released")
			s.notRefreshed(t, "R3", h, "it has been released")
		}

		b := s.hold(t, "R3", claim("b"))
		for _, h := range []leases.Hold{whichever, retry.Hold, a.Hold} {
			s.notReleased(t, "R3", h, "another owner holds it")
			s.notRefreshed(t, "R3", h, "another owner holds it")
		}
		s.released(t, "R3", b.Hold)
		s.notReleased(t, "R3", b.Hold, "it has been released")
		s.hold(t, "R3", claim("c"))
	})

	t.Run("holders_of_one_semaphore", func(t *testing.T) {
		t.Parallel()
		name := newName()
		claim := func(i int) leases.Claim {
			return leases.Claim{Name: name, Slots: 3, Owner: owner(i), TTL: long}
		}
		var h [3]granted
		for i := range h {
			h[i] = s.hold(t, "R3", claim(i))
		}
		swapped := h[0].Hold
		swapped.Fence = h[1].Fence
		s.notRefreshed(t, "R3", swapped, "the fence is another holder's")
		s.notReleased(t, "R3", swapped, "the fence is another holder's")

		s.released(t, "R3", h[1].Hold)
		s.refreshed(t, "R3", h[0].Hold, long)
		s.refreshed(t, "R3", h[2].Hold, long)
		s.hold(t, "R3", claim(3)) // one slot was freed, and only one
		s.busy(t, "R3", claim(4))
	})

	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			name, ctx := newName(), bounded(t)
			first := s.handle(name, k.slots, long, leases.Owner("task"))
			require.NoError(t, first.Acquire(ctx))
			// Behind the back of this process, so that only the store can tell.
			retry := s.hold(t, "R3", leases.Claim{Name: name, Slots: k.slots, Owner: "task", TTL: long})
			require.ErrorIs(t, first.Refresh(ctx), leases.ErrLost, "R3: a retry has re-acquired it")
			require.ErrorIs(t, first.Release(ctx), leases.ErrLost, "R3: a retry has re-acquired it")
			s.refreshed(t, "R3", retry.Hold, long)

			second, third := s.handle(name, k.slots, long, leases.Owner("task")), s.handle(name, k.slots, long, leases.Owner("task"))
			require.NoError(t, second.Acquire(ctx))
			lost := second.Lost()
			require.NoError(t, third.Acquire(ctx))
			select {
			case <-lost:
			case <-ctx.Done():
				require.Fail(t, "R3: an older hold of the same owner must be lost once this process has acquired it again")
			}
			require.ErrorIs(t, second.Release(ctx), leases.ErrLost, "R3")
			require.Less(t, second.Fence(), third.Fence(), "R3: the retry has the larger fence")
			require.NoError(t, third.Refresh(ctx), "R3: the older handle's release left it alone")
			require.NoError(t, third.Release(ctx), "R3")
			s.becomesFree(t, "R3", name, k.slots)
		}
	})
}

func reacquire(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		claim := func(name, owner string, ttl time.Duration) leases.Claim {
			return leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: ttl}
		}
		name := newName()
		last := s.hold(t, "R4", claim(name, "a", long))
		for range 3 {
			again := s.hold(t, "R4", claim(name, "a", long))
			require.Greater(t, again.Fence, last.Fence, "R4: a re-acquire has a new, larger fence")
			last = again
		}
		s.busy(t, "R4", claim(name, "b", long))
		s.released(t, "R4", last.Hold) // one release: there was one hold
		s.hold(t, "R4", claim(name, "b", long))

		// A whole TTL of its own, whether that is longer or shorter.
		longer, shorter := newName(), newName()
		s.hold(t, "R4", claim(longer, "a", short))
		s.hold(t, "R4", claim(shorter, "a", long))
		s.hold(t, "R4", claim(longer, "a", long))
		timed := s.hold(t, "R4", claim(shorter, "a", short))
		timed.awaitExpiry()
		s.busy(t, "R4", claim(longer, "b", long))
		s.hold(t, "R4", claim(shorter, "b", long))
	})

	t.Run("no_second_slot", func(t *testing.T) {
		t.Parallel()
		name := newName()
		claim := func(i int) leases.Claim {
			return leases.Claim{Name: name, Slots: 3, Owner: owner(i), TTL: long}
		}
		var first granted
		for range 5 {
			first = s.hold(t, "R4", claim(0))
		}
		s.hold(t, "R4", claim(1))
		s.hold(t, "R4", claim(2))
		s.busy(t, "R4", claim(3))
		first = s.hold(t, "R4", claim(0)) // also while it is full
		s.busy(t, "R4", claim(3))
		s.released(t, "R4", first.Hold)
		s.hold(t, "R4", claim(3))
		s.busy(t, "R4", claim(4))
	})

	t.Run("at_once", func(t *testing.T) {
		t.Parallel()
		const attempts = 16
		for _, k := range []int{0, 2} {
			name, ctx := newName(), bounded(t)
			fences := make([]int64, attempts)
			concurrently(t, attempts, func(i int) error {
				g, err := s.Acquire(ctx, leases.Claim{Name: name, Slots: k, Owner: "a", TTL: long})
				fences[i] = g.Fence
				return err
			})
			unique := make(map[int64]bool)
			newest := int64(0)
			for _, f := range fences {
				require.Positive(t, f, "R4: an owner is never refused because of its own hold")
				unique[f] = true
				newest = max(newest, f)
			}
			require.Len(t, unique, attempts, "R4: each re-acquire has a fence of its own")
			s.released(t, "R4", leases.Hold{Name: name, Slots: k, Owner: "a", Fence: newest})
			for i := range max(k, 1) {
				s.hold(t, "R4", leases.Claim{Name: name, Slots: k, Owner: owner(i), TTL: long})
			}
		}
	})

	// An attempt may find the owner's own hold while another attempt releases it.
	t.Run("released_at_once", func(t *testing.T) {
		t.Parallel()
		const rounds, tries = 6, 20
		for _, k := range kinds {
			name, ctx := newName(), bounded(t)
			concurrently(t, 8, func(int) error {
				for try, round := 0, 0; round < rounds; try++ {
					g, err := s.Acquire(ctx, leases.Claim{Name: name, Slots: k.slots, Owner: "a", TTL: long})
					if err != nil {
						return err
					}
					if !g.Held {
						if try == tries {
							return errors.New("R4: an owner is refused though nobody else ever held the name")
						}
						continue
					}
					h := leases.Hold{Name: name, Slots: k.slots, Owner: "a", Fence: g.Fence}
					if _, err := s.Release(ctx, h); err != nil {
						return err
					}
					try, round = -1, round+1
				}
				return nil
			})
		}
	})

	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		for _, k := range kinds {
			name, ctx := newName(), bounded(t)
			h := s.handle(name, k.slots, long, leases.NonBlocking())
			require.NoError(t, h.Acquire(ctx))
			before, lost := h.Fence(), h.Lost()
			require.NoError(t, h.Acquire(ctx), "R4: a handle that is held can be acquired again")
			require.Greater(t, h.Fence(), before, "R4")
			select {
			case <-lost:
			case <-ctx.Done():
				require.Fail(t, "R4: the older hold is lost")
			}
			require.NoError(t, h.Release(ctx))
			s.becomesFree(t, "R4", name, k.slots)
		}
	})
}
