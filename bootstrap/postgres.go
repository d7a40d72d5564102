package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simple-module/core/leases/pglease"
)

// What a Postgres URL does not say.
const (
	maxConns        = 16 // a worker's tasks, and their leases; or one a core, if more
	connectTimeout  = 10 * time.Second
	applicationName = "sm-leases"
)

func parsePostgres(raw, driver string) (database, error) {
	_, query, ok := split(raw)
	if !ok {
		return database{}, fmt.Errorf("SM_DATABASE_URL must be like %s (%s)", postgresForm, encodeHint)
	}
	query = renameParams(query, driver)
	base, _, _ := strings.Cut(raw, "?")
	hidden := secretsOf(raw)
	cfg, err := pgxpool.ParseConfig(base + "?" + query)
	if err != nil {
		return database{}, fmt.Errorf("SM_DATABASE_URL can't be used%s; it must be like %s (%s)", hidden.hide(parseReason(err)), postgresForm, encodeHint)
	}
	if !strings.Contains(query, "pool_max_conns=") {
		cfg.MaxConns = max(cfg.MaxConns, maxConns)
	}
	conn := cfg.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = applicationName
	}
	return database{pool: cfg, target: target{
		kind: "postgres", where: fmt.Sprintf("Postgres at %s:%d, database %q,", conn.Host, conn.Port, conn.Database),
		variable: "SM_DATABASE_URL", secrets: hidden,
		open: func(ctx context.Context) (*Runtime, error) { return openPostgres(ctx, cfg) },
	}}, nil
}

// parseReason is what pgx says behind the URL, which it quotes.
func parseReason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		return text[i+1:]
	}
	return ": its parameters are wrong"
}

// renameParams gives the parameters of asyncpg, and of SQLAlchemy for it, the
// names that they have in pgx. The others stay as they are: a + is no space here.
func renameParams(query, driver string) string {
	var pairs []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "ssl" && value == "true":
			pair = "sslmode=require"
		case name == "ssl" && value == "false":
			pair = "sslmode=disable"
		case name == "ssl":
			pair = "sslmode=" + value
		case driver != "asyncpg":
		case name == "timeout":
			pair = "connect_timeout=" + value
		case name == "command_timeout":
			continue // an operation of a lease has its own
		case name == "statement_cache_size" || name == "prepared_statement_cache_size":
			if value != "0" {
				continue
			}
			pair = "default_query_exec_mode=exec"
		}
		pairs = append(pairs, pair)
	}
	return strings.Join(pairs, "&")
}

func openPostgres(ctx context.Context, cfg *pgxpool.Config) (*Runtime, error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := checkPostgres(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return &Runtime{pool: pool, backend: pglease.New(pool)}, nil
}

func checkPostgres(ctx context.Context, pool *pgxpool.Pool) error {
	var allowed bool
	err := pool.QueryRow(ctx, `SELECT
		has_table_privilege('sm_lease', 'SELECT') AND
		has_table_privilege('sm_lease', 'INSERT') AND
		has_table_privilege('sm_lease', 'UPDATE')`).Scan(&allowed)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42P01": // undefined_table
		return failuref(err, "the table sm_lease does not exist (%s)", migrateHint)
	case err == nil && !allowed:
		return failuref(nil, "the role needs SELECT, INSERT and UPDATE on the table sm_lease")
	}
	return err
}
