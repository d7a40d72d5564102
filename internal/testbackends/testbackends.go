// Package testbackends opens a backend of each kind, for tests that show that
// the same code runs on all of them.
package testbackends

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/leases/redislease"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

// answer is what a store may take on a loaded machine.
const answer = time.Minute

// All opens a fresh one of each kind, on a store of its own.
var All = map[string]func(t *testing.T) leases.Backend{
	"in-process": func(*testing.T) leases.Backend { return leases.NewInProcess() },
	"Redis": func(t *testing.T) leases.Backend {
		return redislease.New(teststore.Redis(t), redislease.Timeout(answer))
	},
	"Postgres": func(t *testing.T) leases.Backend {
		pool := teststore.Postgres(t)
		db := stdlib.OpenDBFromPool(pool)
		require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
		require.NoError(t, db.Close())
		return pglease.New(pool, pglease.Timeout(answer))
	},
	"SQLite": func(t *testing.T) leases.Backend {
		return sqlitelease.New(SQLite(t, teststore.SQLitePath(t)), sqlitelease.Timeout(answer))
	},
}

// SQLite opens a file and sees to it that it has the table.
func SQLite(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sqlitelease.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
	return db
}
