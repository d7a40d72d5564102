package leasetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func kindsTold(t *testing.T, s store) {
	for _, k := range []struct {
		name          string
		slots, others int
	}{{"a_lease_refuses_a_semaphore", 0, 1}, {"a_semaphore_refuses_a_lease", 3, 0}} {
		claim := func(name, owner string, slots int) leases.Claim {
			return leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: long}
		}
		wrongKind := func(t *testing.T, c leases.Claim) {
			t.Helper()
			g, err := s.Acquire(bounded(t), c)
			require.ErrorIs(t, err, leases.ErrKind, "R12: %q is in use as the other kind", c.Name)
			require.NotErrorIs(t, err, leases.ErrNotAcquired, "R12: that is not 'busy'")
			require.Zero(t, g, "R12: no grant")
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			name := newName()
			a := s.hold(t, "R12", claim(name, "a", k.slots))
			for range 2 {
				wrongKind(t, claim(name, "b", k.others))
				wrongKind(t, claim(name, "a", k.others)) // whoever asks
			}
			other := a.Hold
			other.Slots = k.others
			s.notRefreshed(t, "R12", other, "it holds the other kind")
			s.notReleased(t, "R12", other, "it holds the other kind")
			s.notReleased(t, "R12", anyFence(other), "it holds the other kind")
			s.refreshed(t, "R12", a.Hold, long) // nothing has changed

			s.released(t, "R12", a.Hold)
			b := s.hold(t, "R12: free again, as either kind", claim(name, "b", k.others))
			require.Greater(t, b.Fence, a.Fence, "R12: the fence grows over kinds")
			wrongKind(t, claim(name, "a", k.slots))
			s.notRefreshed(t, "R12", a.Hold, "it has been released")
			s.notReleased(t, "R12", a.Hold, "it has been released")
			s.refreshed(t, "R12", b.Hold, long)
			s.released(t, "R12", b.Hold)

			dead := claim(name, "dead", k.slots)
			dead.TTL = short
			expires := s.hold(t, "R12", dead)
			require.Greater(t, expires.Fence, b.Fence, "R12: the fence grows over kinds")
			expires.awaitExpiry()
			last := s.hold(t, "R12: expired, so free again as either kind", claim(name, "dead", k.others))
			require.Greater(t, last.Fence, expires.Fence, "R12: the fence grows over kinds")
			s.notReleased(t, "R12", expires.Hold, "its TTL has passed")
			s.refreshed(t, "R12", last.Hold, long)
		})
		t.Run(k.name+"/handles", func(t *testing.T) {
			t.Parallel()
			name, ctx := newName(), bounded(t)
			h := s.handle(name, k.slots, long)
			other := s.handle(name, k.others, long)
			require.NoError(t, h.Acquire(ctx))
			for _, acquire := range []func() error{
				func() error { return other.Acquire(ctx) }, // at once: it does not wait
				func() error { _, err := other.TryAcquire(ctx); return err },
				func() error { return other.Do(ctx, func(context.Context) error { return nil }) },
			} {
				began := time.Now()
				err := acquire()
				require.ErrorIs(t, err, leases.ErrKind, "R12, after %v", time.Since(began))
				require.NotErrorIs(t, err, leases.ErrNotAcquired, "R12: that is not 'busy'")
				require.Contains(t, err.Error(), name, "R12: the error names the name")
			}
			require.NoError(t, h.Release(ctx))
			require.NoError(t, other.Acquire(ctx), "R12: free again, as either kind")
			require.NoError(t, other.Release(ctx))
		})
	}
}
