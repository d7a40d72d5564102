package sqlitelease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
)

var _ leases.Waker = (*sqlitelease.Backend)(nil)

// Two backends know of each other only by the file, as two processes do.
func TestR7_AReleaseElsewhereWakesTheWaiter(t *testing.T) {
	db, path := open(t)
	here, there := sqlitelease.New(db), sqlitelease.New(reopen(t, path))
	for _, c := range []leases.Claim{
		claim(`le"ase<ü>`, "a", 0, time.Hour),
		claim("semaphore", "a", 2, time.Hour),
	} {
		other := c
		other.Owner, other.Name = "b", "another "+c.Name
		if c.Slots > 0 {
			other.Name = c.Name
		}
		h := hold(c, acquire(t, there, c))
		woken := make(chan struct{}, 100)
		stop, err := here.Watch(t.Context(), c.Name, func() { woken <- struct{}{} })
		require.NoError(t, err)
		awaitWake := func() {
			t.Helper()
			select {
			case <-woken:
			case <-time.After(bound):
				require.FailNow(t, "not woken")
			}
		}
		awaitWake() // what came before Watch

		acquire(t, there, other)
		ok, err := there.Refresh(t.Context(), h, 2*time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(400 * time.Millisecond) // several looks
		require.Empty(t, woken, "woken by what frees nothing")

		ok, err = there.Release(t.Context(), h)
		require.NoError(t, err)
		require.True(t, ok)
		awaitWake()

		stop()
		acquire(t, there, c)
		time.Sleep(400 * time.Millisecond) // the look under way is over
		for len(woken) > 0 {
			<-woken
		}
		_, err = there.Release(t.Context(), leases.Hold{Name: c.Name, Owner: c.Owner, Slots: c.Slots})
		require.NoError(t, err)
		time.Sleep(400 * time.Millisecond)
		require.Empty(t, woken, "woken after stop")
	}
}

// A pool of one connection serves the waiter and the looking.
func TestCase12_WaitingWorksWithOneConnectionAndWithoutAnyHint(t *testing.T) {
	db, path := open(t)
	holder := leases.Lease("n", time.Hour, leases.On(sqlitelease.New(reopen(t, path))))
	for name, b := range map[string]leases.Backend{
		"watching": func() leases.Backend { db.SetMaxOpenConns(1); return sqlitelease.New(db) }(),
		"deaf":     struct{ leases.Backend }{sqlitelease.New(reopen(t, path))},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, holder.Acquire(t.Context()))
			h := leases.Lease("n", time.Minute, leases.On(b))
			got := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			go func() { got <- h.Acquire(ctx) }()
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, holder.Release(t.Context()))
			require.NoError(t, <-got)
			require.NoError(t, h.Release(t.Context()))
		})
	}
}
