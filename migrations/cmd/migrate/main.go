// Command migrate creates or updates the table sm_lease in SM_DATABASE_URL.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	settings := bootstrap.Settings{DatabaseURL: os.Getenv("SM_DATABASE_URL")}
	db, dialect, err := settings.OpenDatabase(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	before, err := migrations.Status(ctx, db, dialect)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, db, dialect); err != nil {
		return err
	}
	applied := 0
	for _, m := range before {
		if !m.Applied {
			fmt.Printf("applied %d %s\n", m.Version, m.Name)
			applied++
		}
	}
	if applied == 0 {
		fmt.Println("sm_lease is up to date")
	}
	return nil
}
