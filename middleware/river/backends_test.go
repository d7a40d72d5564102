package riverlease_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/leases/redislease"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

// backends opens a fresh one of each kind. A loaded machine may take its time:
// a store that answers late is a failed attempt.
var backends = map[string]func(t *testing.T) leases.Backend{
	"in-process": func(*testing.T) leases.Backend { return leases.NewInProcess() },
	"Redis":      func(t *testing.T) leases.Backend { return redislease.New(teststore.Redis(t), redislease.Timeout(hang)) },
	"Postgres": func(t *testing.T) leases.Backend {
		pool := teststore.Postgres(t)
		db := stdlib.OpenDBFromPool(pool)
		require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
		require.NoError(t, db.Close())
		return pglease.New(pool, pglease.Timeout(hang))
	},
	"SQLite": func(t *testing.T) leases.Backend {
		return sqlitelease.New(openSQLite(t, teststore.SQLitePath(t)), sqlitelease.Timeout(hang))
	},
}

func openSQLite(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlitelease.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
	return db
}

// onBackends runs the test with River on each database and each backend.
func onBackends(t *testing.T, test func(t *testing.T, q *queue, b leases.Backend)) {
	t.Helper()
	t.Parallel()
	for database, open := range queues {
		for kind, backend := range backends {
			t.Run("River on "+database+", leases on "+kind, func(t *testing.T) {
				t.Parallel()
				test(t, open(t), backend(t))
			})
		}
	}
}

// troubled is a backend whose store can be made to fail.
type troubled struct {
	leases.Backend
	acquire, release atomic.Bool
}

var errStore = errors.New("store: connection refused")

func (b *troubled) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	if b.acquire.Load() {
		return leases.Grant{}, errStore
	}
	return b.Backend.Acquire(ctx, c)
}

func (b *troubled) Release(ctx context.Context, h leases.Hold) (bool, error) {
	if b.release.Load() {
		return false, errStore
	}
	return b.Backend.Release(ctx, h)
}
