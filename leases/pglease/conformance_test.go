package pglease_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/migrations"
)

// newPool returns a pool on a database of its own that has the table.
func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := teststore.PostgresURL(t)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, migrations.Up(t.Context(), db, "postgres"))
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestConformance(t *testing.T) {
	pool := newPool(t)
	leasetest.Run(t, func(*testing.T) leases.Backend { return pglease.New(pool) })
}
