package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/simple-module/core/leases/sqlitelease"
)

const databaseForms = "postgres://user:password@host:port/database, sqlite:relative.db, sqlite:/absolute.db, sqlite:///relative.db, sqlite:////absolute.db"

// databaseOptions has one field that is not zero.
type databaseOptions struct {
	pool   *pgxpool.Config
	sqlite string // path
}

// parseDatabaseURL never puts what it could not parse into an error: it may be
// a part of the password.
func parseDatabaseURL(raw string) (o databaseOptions, err error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return o, fmt.Errorf("SM_DATABASE_URL is not a URL; it must be one of: %s", databaseForms)
	}
	base, _, _ := strings.Cut(strings.ToLower(scheme), "+") // without Python's driver
	switch base {
	case "postgres", "postgresql":
		o.pool, err = parsePostgres("postgres:" + rest)
	case "sqlite":
		o.sqlite, err = parseSQLite(rest)
	default:
		err = fmt.Errorf("SM_DATABASE_URL must be one of: %s", databaseForms)
	}
	return o, err
}

func parsePostgres(raw string) (*pgxpool.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("SM_DATABASE_URL is not a URL that can be used; it must be postgres://user:password@host:port/database (special characters in the password must be percent-encoded)")
	}
	query := u.Query()
	if ssl := query.Get("ssl"); ssl != "" { // asyncpg's name for it
		if ssl == "true" {
			ssl = "require"
		}
		query.Del("ssl")
		query.Set("sslmode", ssl)
		u.RawQuery = query.Encode()
	}
	cfg, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		text := "its parameters are wrong"
		var parse *pgconn.ParseConfigError
		if inner := errors.Unwrap(err); errors.As(err, &parse) && inner != nil {
			text = inner.Error()
		}
		return nil, fmt.Errorf("SM_DATABASE_URL: %s", scrub(text, raw))
	}
	if !query.Has("pool_max_conns") {
		cfg.MaxConns = max(cfg.MaxConns, 16) // a worker's tasks, and their leases
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "leases"
	}
	return cfg, nil
}

// parseSQLite reads what follows "sqlite:".
func parseSQLite(rest string) (path string, err error) {
	switch {
	case strings.HasPrefix(rest, "///"): // SQLAlchemy: a third slash, then the path
		path = rest[3:]
	case strings.HasPrefix(rest, "//"):
		if rest != "//" {
			return "", fmt.Errorf("SM_DATABASE_URL: sqlite:// has no host: write sqlite:///relative.db or sqlite:////absolute.db")
		}
	default:
		path = rest
	}
	switch {
	case path == "" || path == ":memory:":
		return "", fmt.Errorf("SM_DATABASE_URL must name a SQLite file: a database in memory excludes no other process")
	case strings.ContainsAny(path, "?#"):
		return "", fmt.Errorf("SM_DATABASE_URL: a SQLite file has no parameters, and no ? or # in its path")
	}
	return path, nil
}

const migrateHint = "run: make migrate, or migrations.Up"

// openPostgres connects and looks for the table.
func openPostgres(ctx context.Context, raw string, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, &failure{fmt.Sprintf("Postgres can't be used: %s", scrub(err.Error(), raw)), err}
	}
	if err := checkPostgres(ctx, pool); err != nil {
		pool.Close()
		conn := cfg.ConnConfig
		return nil, &failure{fmt.Sprintf("Postgres at %s:%d, database %q, can't be used: %s", conn.Host, conn.Port, conn.Database, scrub(err.Error(), raw)), err}
	}
	return pool, nil
}

// checkPostgres says what is wrong in words that say what to do.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	var allowed bool
	err := pool.QueryRow(ctx, `SELECT
		has_table_privilege('sm_lease', 'SELECT') AND
		has_table_privilege('sm_lease', 'INSERT') AND
		has_table_privilege('sm_lease', 'UPDATE')`).Scan(&allowed)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42P01": // undefined_table
		return &failure{fmt.Sprintf("the table sm_lease does not exist (%s)", migrateHint), err}
	case errors.As(err, &pg):
		return &failure{fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code), err}
	case err != nil:
		return &failure{because(ctx, err) + " (is it running, and is SM_DATABASE_URL right?)", err}
	case !allowed:
		return errors.New("the role needs SELECT, INSERT and UPDATE on the table sm_lease")
	}
	return nil
}

// openSQLite opens a file that has the table. One that is missing is not made:
// it would have no table either, and may be a slip in the path.
func openSQLite(ctx context.Context, path string) (*sql.DB, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, &failure{fmt.Sprintf("SQLite file %q does not exist (%s)", path, migrateHint), err}
	}
	db, err := sqlitelease.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkSQLite(ctx, db); err != nil {
		db.Close()
		return nil, &failure{fmt.Sprintf("SQLite file %q can't be used: %s", path, err), err}
	}
	return db, nil
}

func checkSQLite(ctx context.Context, db *sql.DB) error {
	var n int
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'sm_lease'`).Scan(&n)
	switch {
	case err != nil:
		return &failure{because(ctx, err), err}
	case n == 0:
		return fmt.Errorf("the table sm_lease does not exist (%s)", migrateHint)
	}
	return nil
}

// OpenDatabase opens the database of DatabaseURL for package migrations, with
// the dialect to name there; a SQLite file that is missing is created. Close it
// when done.
func (s Settings) OpenDatabase(ctx context.Context) (db *sql.DB, dialect string, err error) {
	s = s.trimmed()
	if s.DatabaseURL == "" {
		return nil, "", fmt.Errorf("SM_DATABASE_URL is not set; it must be one of: %s", databaseForms)
	}
	o, err := parseDatabaseURL(s.DatabaseURL)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	if o.pool == nil {
		db, err := sqlitelease.Open(o.sqlite)
		return db, "sqlite", err
	}
	db = stdlib.OpenDB(*o.pool.ConnConfig)
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		conn := o.pool.ConnConfig
		return nil, "", &failure{fmt.Sprintf("Postgres at %s:%d can't be used: %s (is it running, and is SM_DATABASE_URL right?)", conn.Host, conn.Port, scrub(because(ctx, err), s.DatabaseURL)), err}
	}
	return db, "postgres", nil
}

// because prefers what a driver says to ctx's "deadline exceeded".
func because(ctx context.Context, err error) string {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return "no answer in time"
	}
	return err.Error()
}
