package bootstrap

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/simple-module/core/leases/sqlitelease"
)

const (
	postgresForm  = "postgres://user:password@host:port/database"
	databaseForms = postgresForm + ", sqlite:relative.db, sqlite:/absolute.db, sqlite:///relative.db, sqlite:////absolute.db"
	migrateHint   = "run: make migrate, or migrations.Up"
)

// database is what DatabaseURL names: a Postgres database if pool is not nil,
// else a SQLite file.
type database struct {
	target
	pool *pgxpool.Config
	file string
}

func parseDatabaseURL(raw string) (database, error) {
	scheme, rest, _ := strings.Cut(raw, ":")
	dialect, driver, _ := strings.Cut(strings.ToLower(scheme), "+")
	switch dialect {
	case "postgres", "postgresql":
		return parsePostgres("postgres:"+rest, driver)
	case "sqlite":
		return parseSQLite(rest)
	}
	return database{}, fmt.Errorf("SM_DATABASE_URL must be one of: %s", databaseForms)
}

// OpenDatabase opens the database of DatabaseURL for package migrations, with
// the dialect to name there; a SQLite file that is missing is created. Close it
// when done.
func (s Settings) OpenDatabase(ctx context.Context) (db *sql.DB, dialect string, err error) {
	s = s.trimmed()
	if s.DatabaseURL == "" {
		return nil, "", fmt.Errorf("bootstrap: SM_DATABASE_URL is not set; it must be one of: %s", databaseForms)
	}
	d, err := parseDatabaseURL(s.DatabaseURL)
	if err != nil {
		return nil, "", fmt.Errorf("bootstrap: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	db, err = within(ctx, func() (*sql.DB, error) { return d.openForMigrations(ctx) }, func(db *sql.DB) { db.Close() })
	if err != nil {
		return nil, "", d.unusable(ctx, err)
	}
	return db, d.kind, nil
}

func (d database) openForMigrations(ctx context.Context) (*sql.DB, error) {
	if d.pool == nil {
		return sqlitelease.Open(d.file)
	}
	db := stdlib.OpenDB(*d.pool.ConnConfig)
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}
