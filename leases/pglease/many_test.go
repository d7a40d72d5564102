package pglease

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/migrations"
)

// newTable returns a pool on a database that has the table.
func newTable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := teststore.Postgres(t)
	db := stdlib.OpenDBFromPool(pool)
	require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
	require.NoError(t, db.Close())
	return pool
}

func execute(t *testing.T, q querier, sql string, args ...any) {
	t.Helper()
	_, err := q.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// TestManySlotsCostNoMoreThanFew: what an operation on a semaphore reads does
// not grow with its slots, whatever the planner knows of the table.
func TestManySlotsCostNoMoreThanFew(t *testing.T) {
	const slots = 10_000
	fill := func(t *testing.T, pool *pgxpool.Pool) { // all but one are held
		execute(t, pool, `INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
			SELECT 'x', n, 'holder ' || n, n, CASE WHEN n IN (0, 777) THEN '-infinity' ELSE clock_timestamp() + interval '1 hour' END
			FROM generate_series(0, $1::int) AS n`, slots)
	}
	for name, prepare := range map[string]func(*testing.T, *pgxpool.Pool){
		"never analyzed": fill,
		"analyzed when empty": func(t *testing.T, pool *pgxpool.Pool) {
			execute(t, pool, "ANALYZE sm_lease")
			fill(t, pool)
		},
		"analyzed": func(t *testing.T, pool *pgxpool.Pool) {
			fill(t, pool)
			execute(t, pool, "ANALYZE sm_lease")
		},
		"among many leases": func(t *testing.T, pool *pgxpool.Pool) {
			execute(t, pool, `INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
				SELECT 'lease ' || n, 0, 'a', 1, clock_timestamp() + interval '1 hour' FROM generate_series(1, 20000) AS n`)
			fill(t, pool)
			execute(t, pool, "ANALYZE sm_lease")
		},
		"among many semaphores": func(t *testing.T, pool *pgxpool.Pool) {
			execute(t, pool, `INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
				SELECT 'semaphore ' || n, slot, 'a', 1, clock_timestamp() + interval '1 hour' FROM generate_series(1, 10000) AS n, generate_series(0, 1) AS slot`)
			fill(t, pool)
			execute(t, pool, "ANALYZE sm_lease")
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newTable(t)
			execute(t, pool, "ALTER TABLE sm_lease SET (autovacuum_enabled = false)")
			prepare(t, pool)
			b := New(pool)
			ctx := t.Context()
			conn, err := pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			for i := range 10 { // from the sixth on a prepared statement may get a plan for any arguments
				owner := fmt.Sprint("owner ", i)
				var fence *int64
				var otherKind, again, waitedFor bool
				var remaining int64
				args := []any{"x", owner, slots}
				require.LessOrEqual(t, reads(ctx, t, conn, func(tx pgx.Tx) error {
					return ask(ctx, tx, []statement{
						{b.sql.queue, args},
						{b.sql.acquireSlot, []any{"x", owner, time.Hour.Milliseconds(), slots}},
					}, &fence, &otherKind, &again, &remaining)
				}), 50, "rows read to acquire")
				require.NotNil(t, fence)
				h := []any{"x", owner, *fence}
				var live bool
				require.LessOrEqual(t, reads(ctx, t, conn, func(tx pgx.Tx) error {
					return ask(ctx, tx, []statement{{b.sql.guardLock, h}, {b.sql.guardCurrent, h}, {b.sql.guardCheck, h}}, &live)
				}), 50, "rows read to guard")
				require.True(t, live)
				require.LessOrEqual(t, reads(ctx, t, conn, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, b.sql.refresh, "x", owner, *fence, slots, time.Hour.Milliseconds())
					return err
				}), 50, "rows read to refresh")
				require.LessOrEqual(t, reads(ctx, t, conn, func(tx pgx.Tx) error {
					return tx.QueryRow(ctx, b.sql.release, "x", owner, *fence, slots).Scan(&waitedFor)
				}), 50, "rows read to release")
			}
		})
	}
}

// reads returns how many rows of the table the operation has read.
func reads(ctx context.Context, t *testing.T, conn *pgxpool.Conn, operation func(pgx.Tx) error) int {
	t.Helper()
	before, after := counted(ctx, t, conn, "seq_tup_read + coalesce(idx_tup_fetch, 0)", operation)
	require.Greater(t, after, before)
	return after - before
}

// counted returns what the session's statistics of the table say before the
// operation and after it. They may also count transactions before this one.
func counted(ctx context.Context, t *testing.T, conn *pgxpool.Conn, what string, operation func(pgx.Tx) error) (before, after int) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		count := func(n *int) error {
			return tx.QueryRow(ctx, "SELECT coalesce(sum("+what+"), 0) FROM pg_stat_xact_user_tables WHERE relname = 'sm_lease'").Scan(n)
		}
		return errors.Join(count(&before), operation(tx), count(&after))
	}))
	return before, after
}

// TestLeasesStayHOT: the indexes of semaphores don't cost a lease's updates
// entries of their own.
func TestLeasesStayHOT(t *testing.T) {
	pool := newTable(t)
	b := New(pool)
	ctx := t.Context()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for i := range 3 {
		notHOT, after := counted(ctx, t, conn, "n_tup_upd - n_tup_hot_upd", func(tx pgx.Tx) error {
			owner := fmt.Sprint("owner ", i)
			var fence *int64
			var otherKind, again, waitedFor bool
			var remaining int64
			if err := ask(ctx, tx, []statement{{b.sql.acquireLease, []any{"x", owner, time.Hour.Milliseconds()}}}, &fence, &otherKind, &again, &remaining); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, b.sql.refresh, "x", owner, *fence, 0, time.Hour.Milliseconds()); err != nil {
				return err
			}
			return tx.QueryRow(ctx, b.sql.release, "x", owner, *fence, 0).Scan(&waitedFor)
		})
		require.Equal(t, notHOT, after)
	}
}

// TestR13_RowsThatAreMissing, deleted by hand, leave room like ones that are
// free; and more rows than the caller's slots are no obstacle.
func TestR13_RowsThatAreMissing(t *testing.T) {
	pool := newTable(t)
	b := New(pool)
	ctx := t.Context()
	acquire := func(slots int, owner string) bool {
		t.Helper()
		g, err := b.Acquire(ctx, leases.Claim{Name: "x", Slots: slots, Owner: owner, TTL: leases.MaxTTL})
		require.NoError(t, err)
		return g.Held
	}
	for i := range 5 {
		require.True(t, acquire(5, fmt.Sprint(i)))
	}
	require.False(t, acquire(5, "5"))
	execute(t, pool, "DELETE FROM sm_lease WHERE name = 'x' AND slot IN (2, 3)")
	require.False(t, acquire(3, "5"))
	require.True(t, acquire(5, "5"))
	require.True(t, acquire(5, "6"))
	require.False(t, acquire(5, "7"))
	execute(t, pool, "UPDATE sm_lease SET expires_at = clock_timestamp() - interval '1 second' WHERE name = 'x' AND holder IN ('0', '4', '5')")
	require.False(t, acquire(2, "8"))
	require.True(t, acquire(3, "8"))
	require.True(t, acquire(3, "8"), "R4")
	require.False(t, acquire(3, "9"))
	require.True(t, acquire(2, "8"), "R4")
	require.True(t, acquire(5, "9"))
	require.True(t, acquire(5, "10"))
	require.False(t, acquire(5, "11"))
}
