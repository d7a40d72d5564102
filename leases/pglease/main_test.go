package pglease_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/migrations"
)

const (
	long  = 10 * time.Minute       // a TTL that no test outlasts
	short = 400 * time.Millisecond // a TTL that is waited for
	bound = time.Minute            // on a hang, not a measure
)

// newURL returns the URL of a database of its own that has the table.
func newURL(t testing.TB) string {
	t.Helper()
	url := teststore.PostgresURL(t)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
	return url
}

// newPool returns a pool on such a database. change, if any, changes its
// settings.
func newPool(t testing.TB, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return open(t, newURL(t), change...)
}

func open(t testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 16
	for _, c := range change {
		c(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// param sets a server setting in every session of the pool.
func param(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

func mode(m pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(ctxOf(t), sql, args...)
	require.NoError(t, err)
}

func begin(t testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(ctxOf(t), pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// lockRows locks the rows of name until the returned function is called.
func lockRows(t testing.TB, pool *pgxpool.Pool, name string) (unlock func()) {
	t.Helper()
	tx := begin(t, pool, pgx.ReadCommitted)
	_, err := tx.Exec(ctxOf(t), "SELECT FROM sm_lease WHERE name = $1 FOR UPDATE", name)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(ctxOf(t))) }
}

// awaitLockWait returns once a session of pool's database waits for a lock.
func awaitLockWait(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(ctxOf(t), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n > 0
	}, bound, time.Millisecond)
}

// awaitLapse returns once the name has no live hold, by the server's clock.
func awaitLapse(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(ctxOf(t), "SELECT count(*) FROM sm_lease WHERE name = $1 AND expires_at > clock_timestamp()", name).Scan(&n)
		return err == nil && n == 0
	}, bound, time.Millisecond)
}

func claim(name string, slots int, owner string, ttl time.Duration) leases.Claim {
	return leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: ttl}
}

// held acquires what must be free.
func held(t testing.TB, b leases.Backend, c leases.Claim) leases.Hold {
	t.Helper()
	g, err := b.Acquire(ctxOf(t), c)
	require.NoError(t, err)
	require.True(t, g.Held, "%+v must be granted, got %+v", c, g)
	return leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner, Fence: g.Fence}
}

func busy(t testing.TB, b leases.Backend, c leases.Claim) leases.Grant {
	t.Helper()
	g, err := b.Acquire(ctxOf(t), c)
	require.NoError(t, err)
	require.False(t, g.Held, "%+v must be busy", c)
	return g
}

func refreshed(t testing.TB, b leases.Backend, h leases.Hold, ttl time.Duration) bool {
	t.Helper()
	ok, err := b.Refresh(ctxOf(t), h, ttl)
	require.NoError(t, err)
	return ok
}

func released(t testing.TB, b leases.Backend, h leases.Hold) bool {
	t.Helper()
	ok, err := b.Release(ctxOf(t), h)
	require.NoError(t, err)
	return ok
}

// onBoth runs the test for a lease and for a semaphore.
func onBoth(t *testing.T, slots int, test func(t *testing.T, slots int)) {
	t.Run("lease", func(t *testing.T) { test(t, 0) })
	t.Run(fmt.Sprintf("semaphore of %d", slots), func(t *testing.T) { test(t, slots) })
}

func handle(b leases.Backend, name string, slots int, ttl time.Duration, opts ...leases.Option) *leases.Handle {
	opts = append([]leases.Option{leases.On(b)}, opts...)
	if slots == 0 {
		return leases.Lease(name, ttl, opts...)
	}
	return leases.Semaphore(name, slots, ttl, opts...)
}
