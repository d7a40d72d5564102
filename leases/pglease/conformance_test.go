package pglease_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/pglease"
)

func TestConformance(t *testing.T) {
	t.Run("as it comes", func(t *testing.T) {
		pool := newPool(t)
		leasetest.Run(t, func(*testing.T) leases.Backend { return pglease.New(pool) })
	})
	// As behind PgBouncer in transaction mode: no statement has a name.
	t.Run("serializable, simple protocol, odd time zone", func(t *testing.T) {
		pool := newPool(t, mode(pgx.QueryExecModeSimpleProtocol),
			param("default_transaction_isolation", "serializable"), param("timezone", "Pacific/Chatham"), param("intervalstyle", "sql_standard"))
		leasetest.Run(t, func(*testing.T) leases.Backend { return pglease.New(pool) })
	})
	t.Run("repeatable read, unnamed statements, a schema that is named", func(t *testing.T) {
		const schema = `Ops "sm_lease"; x`
		url := newURL(t)
		exec(t, open(t, url), `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize())
		exec(t, open(t, url), `ALTER TABLE sm_lease SET SCHEMA `+pgx.Identifier{schema}.Sanitize())
		pool := open(t, url, mode(pgx.QueryExecModeExec),
			param("default_transaction_isolation", "repeatable read"), param("search_path", "pg_catalog"))
		leasetest.Run(t, func(*testing.T) leases.Backend { return pglease.New(pool, pglease.Schema(schema)) })
		_, err := pglease.New(pool).Acquire(ctxOf(t), claim("x", 0, "a", long))
		require.ErrorContains(t, err, "does not exist")
	})
}
