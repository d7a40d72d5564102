package pglease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// onEachLevel runs the test for both kinds and for every isolation level.
func onEachLevel(t *testing.T, slots int, test func(t *testing.T, slots int, level pgx.TxIsoLevel)) {
	onBoth(t, slots, func(t *testing.T, slots int) {
		for _, level := range levels {
			t.Run(string(level), func(t *testing.T) { test(t, slots, level) })
		}
	})
}

func acquired(t testing.TB, h *leases.Handle) *leases.Handle {
	t.Helper()
	require.NoError(t, h.Acquire(ctxOf(t)))
	return h
}

// guarded returns a hold that lapses soon, and a transaction that is guarded by
// it. Only the server knows how soon: this process believes in a long TTL.
func guarded(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, name string, slots int, owner string) (*leases.Handle, pgx.Tx) {
	t.Helper()
	for ttl := short; ttl < bound; ttl *= 4 { // this machine may be slow
		h := acquired(t, handle(pglease.New(pool), name, slots, long, leases.Owner(owner)))
		lapseAfter(t, pool, name, ttl)
		tx := begin(t, pool, level)
		err := pglease.Guard(ctxOf(t), tx, h)
		if err == nil {
			return h, tx
		}
		require.ErrorIs(t, err, leases.ErrLost)
		require.NoError(t, tx.Rollback(ctxOf(t)))
	}
	require.FailNow(t, "too slow to tell")
	return nil, nil
}

func lapseAfter(t *testing.T, pool *pgxpool.Pool, name string, ttl time.Duration) {
	t.Helper()
	exec(t, pool, "UPDATE sm_lease SET expires_at = clock_timestamp() + $2 WHERE name = $1 AND expires_at > '-infinity'", name, ttl)
}

// TestGuard_ATakeoverWaitsForTheTransaction: the hold lapses inside a guarded
// transaction. Nobody is granted its place before that has ended, and nobody
// waits to be told so; then the fence is larger, and the former holder's next
// transaction is refused.
func TestGuard_ATakeoverWaitsForTheTransaction(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	exec(t, pool, "CREATE TABLE written (fence bigint)")
	onEachLevel(t, 1, func(t *testing.T, slots int, level pgx.TxIsoLevel) {
		for _, owner := range []string{"another owner", "the same owner"} {
			t.Run(owner, func(t *testing.T) {
				name := t.Name()
				h, tx := guarded(t, pool, level, name, slots, "the same owner")
				_, err := tx.Exec(ctxOf(t), "INSERT INTO written VALUES ($1)", h.Fence())
				require.NoError(t, err)
				awaitLapse(t, pool, name)

				busy(t, b, claim(name, slots, owner, long))
				_, err = b.Acquire(ctxOf(t), claim(name, 1-min(slots, 1), owner, long))
				if err != nil { // a name that can't be had is busy as either kind
					require.ErrorIs(t, err, leases.ErrKind)
				}
				require.NoError(t, tx.Commit(ctxOf(t)))

				next := held(t, b, claim(name, slots, owner, long))
				require.Greater(t, next.Fence, h.Fence())
				stale := begin(t, pool, level)
				require.ErrorIs(t, pglease.Guard(ctxOf(t), stale, h), leases.ErrLost)
			})
		}
	})
}

// TestGuard_ALapsedHoldKeepsItsSlotOnly: while it is guarded it counts as held,
// and the other slots are to be had.
func TestGuard_ALapsedHoldKeepsItsSlotOnly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			name := t.Name()
			_, tx := guarded(t, pool, level, name, 3, "a")
			awaitLapse(t, pool, name)
			held(t, b, claim(name, 3, "b", long))
			held(t, b, claim(name, 3, "c", long))
			busy(t, b, claim(name, 3, "d", long))
			require.NoError(t, tx.Rollback(ctxOf(t)))
			held(t, b, claim(name, 3, "d", long))
		})
	}
}

// TestGuard_KeepAliveGoesOn while the hold's own transaction lasts for several
// TTLs.
func TestGuard_KeepAliveGoesOn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onBoth(t, 2, func(t *testing.T, slots int) {
		const ttl = 5 * time.Second // a stall as long would end the hold
		h := acquired(t, handle(b, t.Name(), slots, ttl, leases.KeepAlive()))
		before := h.Deadline()
		tx := begin(t, pool, pgx.ReadCommitted)
		require.NoError(t, pglease.Guard(ctxOf(t), tx, h))
		require.Eventually(t, func() bool { return h.Deadline().After(before.Add(ttl)) }, bound, 10*time.Millisecond,
			"refreshed beyond what it was when the transaction began")
		require.NoError(t, pglease.Guard(ctxOf(t), tx, h), "it sees the hold as it is now")
		require.NoError(t, tx.Commit(ctxOf(t)))
		require.NoError(t, h.Release(ctxOf(t)))
	})
}

// TestGuard_ARefreshIsNotLostBehindASnapshot: in a transaction that keeps other
// writers out a refresh fails for the time being, and the hold goes on.
func TestGuard_ARefreshIsNotLostBehindASnapshot(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	for _, level := range levels[1:] {
		t.Run(string(level), func(t *testing.T) {
			h := acquired(t, handle(b, t.Name(), 0, long))
			tx := begin(t, pool, level)
			require.NoError(t, pglease.Guard(ctxOf(t), tx, h))
			for _, call := range []func(context.Context) error{h.Refresh, h.Release} {
				err := call(ctxOf(t))
				require.ErrorContains(t, err, "locked by another transaction")
				require.NotErrorIs(t, err, leases.ErrLost)
			}
			require.NoError(t, tx.Commit(ctxOf(t)))
			require.NoError(t, h.Refresh(ctxOf(t)))
			require.NoError(t, h.Release(ctxOf(t)))
		})
	}
}

// TestGuard_ReadsTheClockAfterItsLock: the hold lapses while Guard waits.
func TestGuard_ReadsTheClockAfterItsLock(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onEachLevel(t, 1, func(t *testing.T, slots int, level pgx.TxIsoLevel) {
		name := t.Name()
		h := acquired(t, handle(b, name, slots, long))
		lapseAfter(t, pool, name, 2*time.Second)
		tx := begin(t, pool, level)
		unlock := lockRows(t, pool, name)
		answer := start(func(ctx context.Context) (bool, error) { return true, pglease.Guard(ctx, tx, h) })
		awaitLockWait(t, pool)
		awaitLapse(t, pool, name)
		unlock()
		require.ErrorIs(t, (<-answer).err, leases.ErrLost)
	})
}

// TestGuard_SeesATakeoverThatCommitsWhileItWaits, or that committed after its
// snapshot was taken.
func TestGuard_SeesATakeoverThatCommitsWhileItWaits(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onEachLevel(t, 1, func(t *testing.T, slots int, level pgx.TxIsoLevel) {
		for _, change := range []string{"holder = 'another'", "fence = fence + 1", "expires_at = '-infinity'"} {
			for _, when := range []string{"while it waits", "since its snapshot"} {
				t.Run(change+" "+when, func(t *testing.T) {
					name := t.Name()
					h := acquired(t, handle(b, name, slots, long))
					tx, other := begin(t, pool, level), begin(t, pool, pgx.ReadCommitted)
					if when == "since its snapshot" {
						_, err := tx.Exec(ctxOf(t), "SELECT count(*) FROM sm_lease")
						require.NoError(t, err)
					}
					_, err := other.Exec(ctxOf(t), "SELECT FROM sm_lease WHERE name = $1 AND holder = $2 FOR UPDATE", name, h.Token())
					require.NoError(t, err)
					_, err = other.Exec(ctxOf(t), "UPDATE sm_lease SET "+change+" WHERE name = $1 AND holder = $2", name, h.Token())
					require.NoError(t, err)
					var answer <-chan later
					guard := func() {
						answer = start(func(ctx context.Context) (bool, error) { return true, pglease.Guard(ctx, tx, h) })
					}
					if when == "while it waits" {
						guard()
						awaitLockWait(t, pool)
					}
					require.NoError(t, other.Commit(ctxOf(t)))
					if when != "while it waits" {
						guard()
					}
					err = (<-answer).err
					if level == pgx.ReadCommitted {
						require.ErrorIs(t, err, leases.ErrLost)
						return
					}
					var pg *pgconn.PgError
					require.ErrorAs(t, err, &pg)
					require.Equal(t, "40001", pg.Code)
					again := begin(t, pool, level)
					require.ErrorIs(t, pglease.Guard(ctxOf(t), again, h), leases.ErrLost)
				})
			}
		}
	})
}

func TestGuard_RefusesWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onBoth(t, 2, func(t *testing.T, slots int) {
		refused := func(h *leases.Handle, because string) {
			t.Helper()
			tx := begin(t, pool, pgx.ReadCommitted)
			err := pglease.Guard(ctxOf(t), tx, h)
			require.ErrorIs(t, err, leases.ErrLost)
			require.ErrorContains(t, err, because)
		}
		h := handle(b, t.Name(), slots, long)
		refused(h, "it is not held")
		acquired(t, h)
		require.NoError(t, h.Release(ctxOf(t)))
		refused(h, "it is not held")

		acquired(t, h)
		require.True(t, released(t, b, leases.Hold{Name: h.Name(), Slots: slots, Owner: h.Token()})) // as an operator would
		refused(h, "no live hold of its owner and fence")

		refused(acquired(t, handle(leases.NewInProcess(), t.Name(), slots, long)), "no live hold of its owner and fence")
	})
	tx := begin(t, pool, pgx.ReadCommitted)
	require.ErrorIs(t, pglease.Guard(ctxOf(t), tx, nil), leases.ErrInvalid)
}

// TestGuard_InASchema finds the table that Schema named.
func TestGuard_InASchema(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, "CREATE SCHEMA ops")
	exec(t, pool, "ALTER TABLE sm_lease SET SCHEMA ops")
	b := pglease.New(pool, pglease.Schema("ops"))
	h := acquired(t, handle(b, "x", 0, long))
	require.NoError(t, b.Guard(ctxOf(t), begin(t, pool, pgx.ReadCommitted), h))
	require.ErrorContains(t, pglease.Guard(ctxOf(t), begin(t, pool, pgx.ReadCommitted), h), "does not exist")
}

// TestGuard_OneCounterManyWriters: without the lease these read-modify-writes
// would lose updates, and with holds that lapse all the time, without Guard.
func TestGuard_OneCounterManyWriters(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	exec(t, pool, "CREATE TABLE counter (n int, fence bigint)")
	exec(t, pool, "INSERT INTO counter VALUES (0, 0)")
	const writers, each, ttl = 4, 10, 100 * time.Millisecond
	ctx := ctxOf(t)
	write := func() error {
		for done := 0; done < each; {
			h := leases.Lease("counter", ttl, leases.On(b))
			if err := h.Acquire(ctx); err != nil {
				if ctx.Err() != nil {
					return err
				}
				continue // the answer took longer than the TTL
			}
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := pglease.Guard(ctx, tx, h); err != nil {
					return err
				}
				var n int
				var fence int64
				if err := tx.QueryRow(ctx, "SELECT n, fence FROM counter").Scan(&n, &fence); err != nil {
					return err
				}
				if fence >= h.Fence() {
					return fmt.Errorf("fence %d after %d", h.Fence(), fence)
				}
				if done%2 == 0 {
					time.Sleep(ttl * 3 / 2)
				}
				_, err := tx.Exec(ctx, "UPDATE counter SET n = $1, fence = $2", n+1, h.Fence())
				return err
			})
			switch {
			case err == nil:
				done++
			case !isLost(err):
				return err
			}
			_ = h.Release(ctx) // lapsed, most of them
		}
		return nil
	}
	errs := make(chan error, writers)
	for range writers {
		go func() { errs <- write() }()
	}
	for range writers {
		require.NoError(t, <-errs)
	}
	var n int
	require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT n FROM counter").Scan(&n))
	require.Equal(t, writers*each, n)
}
