package pglease_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/migrations"
)

func Example() {
	ctx := context.Background()
	url, cleanup := exampleURL()
	defer cleanup()
	db, err := sql.Open("pgx", url)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := migrations.Up(ctx, db, "postgres"); err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	defer pool.Close()

	b := pglease.New(pool)
	h := leases.Lease("import:42", time.Minute, leases.On(b))
	err = h.Do(ctx, func(ctx context.Context) error {
		held, err := leases.Lease("import:42", time.Minute, leases.On(b)).TryAcquire(ctx)
		fmt.Println("a second owner holds it:", held)
		return err
	})
	fmt.Println("error:", err)
	// Output:
	// a second owner holds it: false
	// error: <nil>
}

func ExampleGuard() {
	ctx := context.Background()
	pool, cleanup := examplePool()
	defer cleanup()

	h := leases.Lease("import:42", time.Minute, leases.On(pglease.New(pool)), leases.KeepAlive())
	err := h.Do(ctx, func(ctx context.Context) error {
		// The write commits only while the lease is held.
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pglease.Guard(ctx, tx, h); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE dataset SET imported_at = now() WHERE id = 42")
			return err
		})
	})
	fmt.Println("error:", err)
	// Output:
	// error: <nil>
}
