package pglease_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
)

// later is the answer of a call that is under way.
type later struct {
	ok  bool
	err error
}

func start(call func(context.Context) (bool, error)) <-chan later {
	answer := make(chan later, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		ok, err := call(ctx)
		answer <- later{ok, err}
	}()
	return answer
}

// TestCase07_AnAcquireThatWaitedCountsFromAfterTheWait: a hold that was live
// when the attempt began is over after the wait, and the grant has a whole TTL.
func TestCase07_AnAcquireThatWaitedCountsFromAfterTheWait(t *testing.T) {
	t.Parallel()
	onBoth(t, 1, func(t *testing.T, slots int) {
		pool := newPool(t)
		b := pglease.New(pool)
		old := held(t, b, claim("x", slots, "a", short))
		awaitLapse(t, pool, "x")
		unlock := lockRows(t, pool, "x")
		var fence int64
		answer := start(func(ctx context.Context) (bool, error) {
			g, err := b.Acquire(ctx, claim("x", slots, "b", long))
			fence = g.Fence
			return g.Held, err
		})
		awaitLockWait(t, pool)
		time.Sleep(50 * time.Millisecond) // what a clock from before the wait would lack
		unlock()
		a := <-answer
		require.NoError(t, a.err)
		require.True(t, a.ok, "the attempt gave up: did this machine stall for a second?")
		require.Greater(t, fence, old.Fence)
		var whole bool
		require.NoError(t, pool.QueryRow(ctxOf(t),
			// The fence is the clock at the grant.
			"SELECT extract(epoch FROM expires_at) * 1000000 >= fence + $2::bigint FROM sm_lease WHERE name = 'x' AND holder = 'b' AND fence = $1",
			fence, long.Microseconds()).Scan(&whole))
		require.True(t, whole, "the grant has less than a TTL")
	})
}

// TestR2_ARefreshThatWaitedDoesNotRevive a hold that lapsed meanwhile.
func TestR2_ARefreshThatWaitedDoesNotRevive(t *testing.T) {
	t.Parallel()
	onBoth(t, 1, func(t *testing.T, slots int) {
		pool := newPool(t)
		b := pglease.New(pool)
		for name, call := range map[string]func(context.Context, leases.Hold) (bool, error){
			"refresh": func(ctx context.Context, h leases.Hold) (bool, error) { return b.Refresh(ctx, h, long) },
			"release": b.Release,
		} {
			h := held(t, b, claim(name, slots, "a", short))
			unlock := lockRows(t, pool, name)
			answer := start(func(ctx context.Context) (bool, error) { return call(ctx, h) })
			awaitLockWait(t, pool)
			awaitLapse(t, pool, name)
			unlock()
			a := <-answer
			require.NoError(t, a.err)
			require.False(t, a.ok, "a %s of a hold that lapsed while it waited", name)
			held(t, b, claim(name, slots, "b", long))
		}
	})
}

// TestR1_AnAttemptNeverHangs behind a transaction that keeps the row locked: the
// name is busy, or the hold's own calls fail, in bounded time.
func TestR1_AnAttemptNeverHangs(t *testing.T) {
	t.Parallel()
	onBoth(t, 1, func(t *testing.T, slots int) {
		pool := newPool(t)
		b := pglease.New(pool, pglease.Timeout(bound))
		h := held(t, b, claim("x", slots, "a", short))
		awaitLapse(t, pool, "x")
		lockRows(t, pool, "x") // until the test ends
		busy(t, b, claim("x", slots, "b", long))
		busy(t, b, claim("x", slots, "a", long))
		for _, call := range []func() (bool, error){
			func() (bool, error) { return b.Refresh(ctxOf(t), h, long) },
			func() (bool, error) { return b.Release(ctxOf(t), h) },
		} {
			_, err := call()
			require.ErrorContains(t, err, "postgres: the hold's row is locked by another transaction")
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

// TestR1_ARefreshUnderWayKeepsItsHold: it was live when the refresh locked it,
// and lapses before the refresh has committed. Whoever looks meanwhile sees a
// hold that is over, and must not grant its place.
func TestR1_ARefreshUnderWayKeepsItsHold(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	// refreshing makes h lapse, for everyone but the refresh that does not commit.
	refreshing := func(t *testing.T, h leases.Hold) (commit func()) {
		exec(t, pool, "UPDATE sm_lease SET expires_at = clock_timestamp() WHERE name = $1 AND holder = $2", h.Name, h.Owner)
		tx := begin(t, pool, pgx.ReadCommitted)
		tag, err := tx.Exec(ctxOf(t), "UPDATE sm_lease SET expires_at = clock_timestamp() + interval '1 hour' WHERE name = $1 AND holder = $2", h.Name, h.Owner)
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
		return func() { require.NoError(t, tx.Commit(ctxOf(t))) }
	}
	t.Run("lease", func(t *testing.T) {
		h := held(t, b, claim("lease", 0, "a", long))
		commit := refreshing(t, h)
		busy(t, b, claim("lease", 0, "b", long))
		commit()
		busy(t, b, claim("lease", 0, "b", long))
	})
	t.Run("fewer slots than before", func(t *testing.T) {
		first, second := held(t, b, claim("lowered", 3, "1", long)), held(t, b, claim("lowered", 3, "2", long))
		held(t, b, claim("lowered", 3, "3", long))
		require.True(t, released(t, b, first)) // so that there is a row to be had
		commit := refreshing(t, second)
		busy(t, b, claim("lowered", 2, "4", long))
		held(t, b, claim("lowered", 3, "4", long)) // for three there is room
		commit()
		busy(t, b, claim("lowered", 3, "5", long))
	})
	t.Run("a lease where a semaphore is refreshed", func(t *testing.T) {
		h := held(t, b, claim("kind", 1, "a", long))
		commit := refreshing(t, h)
		busy(t, b, claim("kind", 0, "b", long))
		commit()
		_, err := b.Acquire(ctxOf(t), claim("kind", 0, "b", long))
		require.ErrorIs(t, err, leases.ErrKind)
	})
	t.Run("a semaphore where a lease is refreshed", func(t *testing.T) {
		h := held(t, b, claim("kind 2", 0, "a", long))
		commit := refreshing(t, h)
		busy(t, b, claim("kind 2", 1, "b", long))
		commit()
		_, err := b.Acquire(ctxOf(t), claim("kind 2", 1, "b", long))
		require.ErrorIs(t, err, leases.ErrKind)
	})
	t.Run("its own retry", func(t *testing.T) {
		h := held(t, b, claim("own", 5, "a", long))
		commit := refreshing(t, h)
		g, err := b.Acquire(ctxOf(t), claim("own", 5, "a", long))
		require.NoError(t, err)
		require.False(t, g.Held, "R4: no second slot")
		commit()
		held(t, b, claim("own", 5, "a", long))
		var n int
		require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT count(*) FROM sm_lease WHERE name = 'own' AND holder = 'a'").Scan(&n))
		require.Equal(t, 1, n)
	})
}
