// Package migrations creates and updates the table sm_lease, in Postgres and in
// SQLite, for pglease and sqlitelease.
//
//	err := migrations.Up(ctx, db, "postgres")
//
// What has been applied is kept in a table of its own, sm_lease_version, so
// that an application's own migrations are not touched, with goose or any
// other tool. Any number of processes may call Up at once.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/simple-module/core/leases"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

const versionTable = "sm_lease_version"

// Migration is one step and whether it has been applied.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// Up applies what is missing. dialect is "postgres" or "sqlite"; db may use any
// driver for it.
func Up(ctx context.Context, db *sql.DB, dialect string) error {
	return run(ctx, db, dialect, "up", func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Down takes all of it back: it drops sm_lease, with the fences in it.
func Down(ctx context.Context, db *sql.DB, dialect string) error {
	return run(ctx, db, dialect, "down", func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, 0)
		return err
	})
}

// Status returns all migrations in order.
func Status(ctx context.Context, db *sql.DB, dialect string) ([]Migration, error) {
	var all []Migration
	err := run(ctx, db, dialect, "status", func(p *goose.Provider) error {
		all = nil
		steps, err := p.Status(ctx)
		for _, s := range steps {
			_, name, _ := strings.Cut(s.Source.Path, "_")
			all = append(all, Migration{s.Source.Version, strings.TrimSuffix(name, ".sql"), s.State == goose.StateApplied})
		}
		return err
	})
	return all, err
}

func run(ctx context.Context, db *sql.DB, dialect, what string, do func(*goose.Provider) error) error {
	if db == nil {
		return fmt.Errorf("%w: db must not be nil", leases.ErrInvalid)
	}
	opts := []goose.ProviderOption{goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true)}
	var gooseDialect goose.Dialect
	again := func(error) bool { return false }
	switch dialect {
	case "postgres":
		gooseDialect = goose.DialectPostgres
		// An advisory lock makes the processes that migrate at once queue up.
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60), lock.WithUnlockTimeout(1, 10))
		if err != nil {
			return err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	case "sqlite":
		gooseDialect = goose.DialectSQLite3
		again = sqliteRace
	default:
		return fmt.Errorf("%w: dialect must be \"postgres\" or \"sqlite\", got %q", leases.ErrInvalid, dialect)
	}
	sub, err := fs.Sub(files, dialect)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(raceTime); ; {
		// goose remembers what it has seen of the database: a new one each time.
		p, err := goose.NewProvider(gooseDialect, db, sub, opts...)
		if err == nil {
			err = do(p)
		}
		if err == nil {
			return nil
		}
		if again(err) && time.Now().Before(deadline) {
			select {
			case <-time.After(10*time.Millisecond + rand.N(40*time.Millisecond)):
				continue
			case <-ctx.Done():
				err = errors.Join(err, ctx.Err())
			}
		}
		hint := ""
		if strings.Contains(err.Error(), "SQLSTATE 42501") { // insufficient_privilege
			hint = " (migrate as the owner of the tables, or as a role with CREATE on the schema)"
		}
		return fmt.Errorf("migrations: %s: %s: %w%s", dialect, what, err, hint)
	}
}

const raceTime = 30 * time.Second

// sqliteRace reports whether another process was migrating the file at the
// same moment: SQLite has no lock that outlasts a transaction.
func sqliteRace(err error) bool {
	for _, text := range []string{"database is locked", "already exists", "database schema has changed", "UNIQUE constraint failed"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
