package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/leases/redislease"
	"github.com/simple-module/core/leases/sqlitelease"
)

// Runtime is a store that was opened. Its methods are safe for concurrent use.
type Runtime struct {
	kind    string
	backend leases.Backend
	redis   redis.UniversalClient
	pool    *pgxpool.Pool
	sqlite  *sql.DB
	timeout time.Duration
}

// Start opens the store that s names, makes sure that it can be used and makes
// it the process-wide backend (leases.Configure). When it fails nothing stays
// open and the process-wide backend is as before.
func Start(ctx context.Context, s Settings) (*Runtime, error) {
	s = s.trimmed()
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	r, err := open(bounded, s)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	r.timeout = s.timeout()
	if r.kind == "in-process" {
		s.logger().WarnContext(ctx, "leases are kept in this process: one process only; set SM_REDIS_URL or SM_DATABASE_URL to share them")
	} else {
		s.logger().InfoContext(ctx, "leases are kept in a store", "backend", r.kind)
	}
	leases.Configure(r.backend)
	return r, nil
}

func open(ctx context.Context, s Settings) (*Runtime, error) {
	switch {
	case s.RedisURL != "":
		c, err := openRedis(ctx, s.RedisURL)
		if err != nil {
			return nil, err
		}
		var opts []redislease.Option
		if s.RedisPrefix != "" {
			opts = append(opts, redislease.Prefix(s.RedisPrefix))
		}
		return &Runtime{kind: "redis", redis: c, backend: redislease.New(c, opts...)}, nil
	case s.DatabaseURL != "":
		o, err := parseDatabaseURL(s.DatabaseURL)
		if err != nil {
			return nil, err
		}
		if o.pool == nil {
			db, err := openSQLite(ctx, o.sqlite)
			if err != nil {
				return nil, err
			}
			return &Runtime{kind: "sqlite", sqlite: db, backend: sqlitelease.New(db)}, nil
		}
		pool, err := openPostgres(ctx, s.DatabaseURL, o.pool)
		if err != nil {
			return nil, err
		}
		return &Runtime{kind: "postgres", pool: pool, backend: pglease.New(pool)}, nil
	}
	return &Runtime{kind: "in-process", backend: leases.NewInProcess()}, nil
}

// Kind is "redis", "postgres", "sqlite" or "in-process".
func (r *Runtime) Kind() string { return r.kind }

// Backend is the backend that Start has configured.
func (r *Runtime) Backend() leases.Backend { return r.backend }

// Redis is the client when Kind is "redis", otherwise nil.
func (r *Runtime) Redis() redis.UniversalClient { return r.redis }

// Pool is the pool when Kind is "postgres", otherwise nil.
func (r *Runtime) Pool() *pgxpool.Pool { return r.pool }

// SQLite is the database when Kind is "sqlite", otherwise nil.
func (r *Runtime) SQLite() *sql.DB { return r.sqlite }

// Health returns nil while the store answers, with its table. It returns in
// Settings.Timeout at the latest.
func (r *Runtime) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var err error
	switch {
	case r.redis != nil:
		err = r.redis.Ping(ctx).Err()
	case r.pool != nil:
		err = checkPostgres(ctx, r.pool)
	case r.sqlite != nil:
		err = checkSQLite(ctx, r.sqlite)
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %s: %w", r.kind, err)
	}
	return nil
}

// Close closes what Start opened; a second call does nothing more. If the
// backend is still the process-wide one, leases that are acquired afterwards
// fail: they don't fall back to the in-process backend. It returns when ctx
// ends, or after 10 s, even if connections are in use until then.
func (r *Runtime) Close(ctx context.Context) error {
	if leases.Default() == r.backend {
		leases.Configure(closed{})
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("bootstrap: %s: close: connections are still in use: %w", r.kind, ctx.Err())
	}
}

func (r *Runtime) close() error {
	switch {
	case r.redis != nil:
		if err := r.redis.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			return err
		}
	case r.pool != nil:
		r.pool.Close()
	case r.sqlite != nil:
		return r.sqlite.Close()
	}
	return nil
}

// closed is the backend of a process whose Runtime was closed.
type closed struct{}

var errClosed = errors.New("the store was closed (bootstrap.Runtime.Close)")

func (closed) Acquire(context.Context, leases.Claim) (leases.Grant, error) {
	return leases.Grant{}, errClosed
}

func (closed) Refresh(context.Context, leases.Hold, time.Duration) (bool, error) {
	return false, errClosed
}

func (closed) Release(context.Context, leases.Hold) (bool, error) { return false, errClosed }
