package bootstrap_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/leases"
)

// Web and worker begin alike. Here neither variable is set, so that the leases
// are kept in this process.
func ExampleStart() {
	ctx := context.Background()
	settings, err := bootstrap.FromEnv()
	if err != nil {
		fmt.Println(err)
		return
	}
	settings.Logger = slog.New(slog.DiscardHandler)
	rt, err := bootstrap.Start(ctx, settings)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	fmt.Println("leases are kept", rt.Kind())

	err = leases.Lease("import:42", time.Minute).Do(ctx, func(context.Context) error {
		fmt.Println("importing")
		return nil
	})
	fmt.Println(err)
	// Output:
	// leases are kept in-process
	// importing
	// <nil>
}
