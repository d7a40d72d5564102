package sqlitelease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

func Example() {
	ctx := context.Background()
	dir, cleanup := exampleDir()
	defer cleanup()
	db, err := sqlitelease.Open(dir + "/leases.db")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if err := migrations.Up(ctx, db, "sqlite"); err != nil {
		panic(err)
	}

	b := sqlitelease.New(db)
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
