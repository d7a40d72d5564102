package pglease_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simple-module/core/migrations"
)

// exampleURL returns the URL of a schema of its own on the server for tests.
func exampleURL() (where string, cleanup func()) {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("SM_TEST_DATABASE_URL"))
	must(err)
	server, err := pgxpool.New(ctx, u.String())
	must(err)
	schema := "sm_example_" + strings.ToLower(rand.Text())
	_, err = server.Exec(ctx, "CREATE SCHEMA "+schema)
	must(err)
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), func() {
		_, err := server.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
		must(err)
		server.Close()
	}
}

// examplePool returns a pool on such a schema, with the tables it needs.
func examplePool() (pool *pgxpool.Pool, cleanup func()) {
	ctx := context.Background()
	where, drop := exampleURL()
	db, err := sql.Open("pgx", where)
	must(err)
	must(migrations.Up(ctx, db, "postgres"))
	must(db.Close())
	pool, err = pgxpool.New(ctx, where)
	must(err)
	_, err = pool.Exec(ctx, "CREATE TABLE dataset (id bigint, imported_at timestamptz)")
	must(err)
	return pool, func() {
		pool.Close()
		drop()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
