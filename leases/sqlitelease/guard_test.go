package sqlitelease_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
)

// guarded is a db with a table of the application beside sm_lease.
func guarded(t testing.TB) (*sql.DB, string, leases.Backend) {
	t.Helper()
	db, path := open(t)
	_, err := db.Exec("CREATE TABLE report (id INTEGER PRIMARY KEY, text TEXT)")
	require.NoError(t, err)
	return db, path, sqlitelease.New(db)
}

// save writes in a transaction that h guards.
func save(ctx context.Context, db *sql.DB, h *leases.Handle) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqlitelease.Guard(ctx, tx, h); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO report (text) VALUES ('done')"); err != nil {
		return err
	}
	return tx.Commit()
}

func reports(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT count(*) FROM report").Scan(&n))
	return n
}

func TestGuardCommitsOnlyWhileHeld(t *testing.T) {
	db, _, b := guarded(t)
	for i, newHandle := range []func(owner string) *leases.Handle{
		func(owner string) *leases.Handle {
			return leases.Lease("lease", time.Minute, leases.On(b), leases.Owner(owner))
		},
		func(owner string) *leases.Handle {
			return leases.Semaphore("semaphore", 2, time.Minute, leases.On(b), leases.Owner(owner))
		},
	} {
		h := newHandle("a")
		require.ErrorIs(t, save(t.Context(), db, h), leases.ErrLost, "never held")
		require.NoError(t, h.Acquire(t.Context()))
		require.NoError(t, save(t.Context(), db, h))
		require.NoError(t, save(t.Context(), db, h), "as often as needed")
		require.NoError(t, h.Refresh(t.Context()), "the guard's transaction has ended")
		require.NoError(t, h.Release(t.Context()))
		require.ErrorIs(t, save(t.Context(), db, h), leases.ErrLost, "released")

		require.NoError(t, h.Acquire(t.Context()))
		require.NoError(t, save(t.Context(), db, h), "the new fence counts")
		require.Equal(t, 3*(i+1), reports(t, db))
	}
}

// The store decides, not what the process believes.
func TestGuardRefusesAHoldThatTheStoreGaveAway(t *testing.T) {
	db, _, b := guarded(t)
	stale := leases.Lease("n", time.Minute, leases.On(b))
	require.NoError(t, stale.Acquire(t.Context()))
	_, err := db.Exec("UPDATE sm_lease SET expires_at = 0")
	require.NoError(t, err)
	require.ErrorIs(t, save(t.Context(), db, stale), leases.ErrLost, "expired")

	// The same owner in another process: a fence further on.
	_, err = b.Acquire(t.Context(), leases.Claim{Name: "n", Owner: stale.Token(), TTL: time.Minute})
	require.NoError(t, err)
	require.False(t, stale.Deadline().IsZero())
	require.ErrorIs(t, save(t.Context(), db, stale), leases.ErrLost, "R3")
	require.Zero(t, reports(t, db))

	elsewhere := leases.Lease("n", time.Minute, leases.On(leases.NewInProcess()))
	require.NoError(t, elsewhere.Acquire(t.Context()))
	err = save(t.Context(), db, elsewhere)
	require.ErrorIs(t, err, leases.ErrLost)
	require.EqualError(t, err, `leases: lost: guard "n": this file has no live hold of its owner and fence`)
}

// The clock is read after the wait for the write lock.
func TestGuardThatWaitedRefusesAHoldThatExpiredMeanwhile(t *testing.T) {
	db, path, b := guarded(t)
	deferred, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=60000")
	require.NoError(t, err)
	defer deferred.Close()
	h := leases.Lease("n", time.Minute, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))
	_, err = db.Exec("UPDATE sm_lease SET expires_at = ?", time.Now().Add(500*time.Millisecond).UnixMicro())
	require.NoError(t, err)
	var got error
	whileLocked(t, db, time.Second, func() { got = save(t.Context(), deferred, h) })
	require.ErrorIs(t, got, leases.ErrLost)
	require.Zero(t, reports(t, db))
}

// Once Guard has passed nobody can acquire the name before the commit, even
// if the hold expires meanwhile.
func TestGuardKeepsOthersOutUntilTheTransactionEnds(t *testing.T) {
	db, path, b := guarded(t)
	h := leases.Lease("n", 2*time.Second, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, sqlitelease.Guard(t.Context(), tx, h))
	<-h.Lost()

	impatient := sqlitelease.New(reopen(t, path), sqlitelease.Timeout(200*time.Millisecond))
	g, err := impatient.Acquire(t.Context(), claim("n", "other", 0, time.Minute))
	if err == nil { // its last millisecond
		require.False(t, g.Held)
	} else {
		require.ErrorContains(t, err, "database is locked")
	}
	_, err = tx.Exec("INSERT INTO report (text) VALUES ('in time')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	acquire(t, b, claim("n", "other", 0, time.Minute))
	require.Equal(t, 1, reports(t, db))
	require.ErrorIs(t, save(t.Context(), db, h), leases.ErrLost)
}

// What the documentation of Guard says of deferred transactions.
func TestGuardInADeferredTransactionThatHasRead(t *testing.T) {
	db, path, b := guarded(t)
	deferred, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=60000")
	require.NoError(t, err)
	defer deferred.Close()
	h := leases.Lease("n", time.Minute, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))

	tx, err := deferred.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var n int
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM report").Scan(&n))
	require.NoError(t, save(t.Context(), db, h)) // another writer
	err = sqlitelease.Guard(t.Context(), tx, h)
	require.ErrorContains(t, err, `leases: guard "n": sqlite: database is locked`)
	require.NotErrorIs(t, err, leases.ErrLost)
	require.NoError(t, tx.Rollback())
	require.NoError(t, save(t.Context(), deferred, h), "with Guard first")
}

func TestGuardsErrors(t *testing.T) {
	db, _, b := guarded(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, sqlitelease.Guard(t.Context(), tx, nil), leases.ErrInvalid)
	require.NoError(t, tx.Rollback())

	h := leases.Lease("n", time.Minute, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))
	_, err = db.Exec("DROP TABLE sm_lease")
	require.NoError(t, err)
	require.EqualError(t, save(t.Context(), db, h), `leases: guard "n": sqlite: no such table: sm_lease (run: make migrate, or migrations.Up)`)
}

func ExampleGuard() {
	ctx := context.Background()
	dir, cleanup := exampleDir()
	defer cleanup()
	db, err := sqlitelease.Open(dir + "/app.db")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	exampleTables(db)

	h := leases.Lease("report:2024", time.Minute, leases.On(sqlitelease.New(db)))
	err = h.Do(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlitelease.Guard(ctx, tx, h); err != nil {
			return err // lost: nothing is written
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report (text) VALUES ('done')"); err != nil {
			return err
		}
		return tx.Commit()
	})
	fmt.Println(err)
	// Output: <nil>
}
