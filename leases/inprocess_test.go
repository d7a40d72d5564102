package leases_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
)

func TestInProcess(t *testing.T) {
	leasetest.Run(t, func(*testing.T) leases.Backend { return leases.NewInProcess() })
}

// TestR5_InProcessTheFenceOutlivesIdleNames, which are dropped when there are
// many.
func TestR5_InProcessTheFenceOutlivesIdleNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still, so only the counter grows
		b := leases.NewInProcess()
		grant := func(name string, slots int) int64 {
			t.Helper()
			g, err := b.Acquire(t.Context(), leases.Claim{Name: name, Slots: slots, Owner: "a", TTL: time.Hour})
			require.NoError(t, err)
			require.True(t, g.Held)
			return g.Fence
		}
		largest := int64(0)
		for range 100 {
			largest = grant("x", 0)
		}
		ok, err := b.Release(t.Context(), leases.Hold{Name: "x", Owner: "a"})
		require.NoError(t, err)
		require.True(t, ok)
		grant("held", 0)
		for i := range 5000 {
			name := fmt.Sprint("idle ", i)
			grant(name, 2)
			_, err := b.Release(t.Context(), leases.Hold{Name: name, Slots: 2, Owner: "a"})
			require.NoError(t, err)
		}
		require.Greater(t, grant("x", 0), largest)
		ok, err = b.Release(t.Context(), leases.Hold{Name: "held", Owner: "a"})
		require.NoError(t, err)
		require.True(t, ok, "what is held is not dropped")
	})
}

// TestR2_InProcessExpiryIsExact under a clock that stands still.
func TestR2_InProcessExpiryIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		c := leases.Claim{Name: "x", Owner: "a", TTL: time.Second}
		g, err := b.Acquire(t.Context(), c)
		require.NoError(t, err)
		h := leases.Hold{Name: "x", Owner: "a", Fence: g.Fence}
		c.Owner = "b"

		time.Sleep(time.Second - 1)
		g, err = b.Acquire(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, leases.Grant{RetryAfter: 1}, g)
		ok, err := b.Refresh(t.Context(), h, time.Second)
		require.NoError(t, err)
		require.True(t, ok)

		time.Sleep(time.Second)
		ok, err = b.Refresh(t.Context(), h, time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		ok, err = b.Release(t.Context(), h)
		require.NoError(t, err)
		require.False(t, ok)
		g, err = b.Acquire(t.Context(), c)
		require.NoError(t, err)
		require.True(t, g.Held)
	})
}
