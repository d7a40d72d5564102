// Command migrate creates or updates the table sm_lease in SM_DATABASE_URL.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/migrations"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: SM_DATABASE_URL=… migrate\nIt creates or updates the table sm_lease, and takes no arguments. Redis needs no table.")
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "migrate: there are no arguments, got %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if os.Getenv("SM_DATABASE_URL") == "" && os.Getenv("SM_REDIS_URL") != "" {
		fmt.Println("Redis needs no table: there is nothing to do for SM_REDIS_URL")
		return nil
	}
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
