package httplease_test

import (
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

// backends has a fresh one of each kind.
var backends = map[string]func(t *testing.T) leases.Backend{
	"in-process": func(*testing.T) leases.Backend { return leases.NewInProcess() },
	"redis":      func(t *testing.T) leases.Backend { return redislease.New(teststore.Redis(t)) },
	"postgres": func(t *testing.T) leases.Backend {
		pool := teststore.Postgres(t)
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
		return pglease.New(pool)
	},
	"sqlite": func(t *testing.T) leases.Backend {
		db, err := sqlitelease.Open(teststore.SQLitePath(t))
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
		return sqlitelease.New(db)
	},
}

// onEach runs the same test, with the same handlers, on each kind of backend.
func onEach(t *testing.T, test func(*testing.T, leases.Backend)) {
	t.Helper()
	for name, newBackend := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBackend(t))
		})
	}
}
