package migrations_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

// TestMain is also a process that only migrates, for TestEightProcesses.
func TestMain(m *testing.M) {
	dialect, dsn := os.Getenv("MIGRATE_DIALECT"), os.Getenv("MIGRATE_DSN")
	if dialect == "" {
		os.Exit(m.Run())
	}
	db, err := open(dialect, dsn)
	if err == nil {
		err = migrations.Up(context.Background(), db, dialect)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

func open(dialect, dsn string) (*sql.DB, error) {
	if dialect == "sqlite" {
		return sqlitelease.Open(dsn)
	}
	return sql.Open("pgx", dsn)
}

func stores(t *testing.T, test func(t *testing.T, dialect, dsn string, db *sql.DB)) {
	for dialect, dsn := range map[string]func(testing.TB) string{"postgres": teststore.PostgresURL, "sqlite": teststore.SQLitePath} {
		t.Run(dialect, func(t *testing.T) {
			where := dsn(t)
			db, err := open(dialect, where)
			require.NoError(t, err)
			t.Cleanup(func() { db.Close() })
			test(t, dialect, where, db)
		})
	}
}

func TestUpDownStatus(t *testing.T) {
	stores(t, func(t *testing.T, dialect, _ string, db *sql.DB) {
		ctx := t.Context()
		all, err := migrations.Status(ctx, db, dialect)
		require.NoError(t, err)
		require.Equal(t, []migrations.Migration{{Version: 1, Name: "sm_lease"}, {Version: 2, Name: "sm_lease_slots"}}, all)

		require.NoError(t, migrations.Up(ctx, db, dialect))
		require.NoError(t, migrations.Up(ctx, db, dialect), "a second time does nothing")
		_, err = db.ExecContext(ctx, "SELECT name, slot, holder, fence, expires_at FROM sm_lease")
		require.NoError(t, err)
		all, err = migrations.Status(ctx, db, dialect)
		require.NoError(t, err)
		for _, m := range all {
			require.True(t, m.Applied, m.Name)
		}

		require.NoError(t, migrations.Down(ctx, db, dialect))
		_, err = db.ExecContext(ctx, "SELECT * FROM sm_lease")
		require.Error(t, err)
		require.NoError(t, migrations.Up(ctx, db, dialect))
	})
}

// TestOwnVersionTable: an application's own goose migrations are not touched.
func TestOwnVersionTable(t *testing.T) {
	stores(t, func(t *testing.T, dialect, _ string, db *sql.DB) {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE goose_db_version (mine text)")
		require.NoError(t, err)
		require.NoError(t, migrations.Up(t.Context(), db, dialect))
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM goose_db_version").Scan(&n))
		require.Zero(t, n)
	})
}

func TestEightProcesses(t *testing.T) {
	stores(t, func(t *testing.T, dialect, dsn string, db *sql.DB) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), "MIGRATE_DIALECT="+dialect, "MIGRATE_DSN="+dsn)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		all.Wait()
		status, err := migrations.Status(t.Context(), db, dialect)
		require.NoError(t, err)
		require.True(t, status[0].Applied)
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sm_lease").Scan(&n))
	})
}

func TestBadArguments(t *testing.T) {
	db, err := sql.Open("pgx", "postgres://127.0.0.1:1/x")
	require.NoError(t, err)
	defer db.Close()
	err = migrations.Up(t.Context(), db, "mysql")
	require.ErrorIs(t, err, leases.ErrInvalid)
	require.ErrorContains(t, err, `dialect must be "postgres" or "sqlite", got "mysql"`)
	err = migrations.Up(t.Context(), nil, "sqlite")
	require.ErrorIs(t, err, leases.ErrInvalid)
	require.ErrorContains(t, err, "db must not be nil")
}
