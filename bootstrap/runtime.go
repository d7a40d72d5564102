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
)

// Runtime is a store that was opened. Its methods are safe for concurrent use.
type Runtime struct {
	target  target
	timeout time.Duration
	backend leases.Backend

	// One is not nil, unless the backend is in-process.
	redis  redis.UniversalClient
	pool   *pgxpool.Pool
	sqlite *sql.DB
}

// Start opens the store that s names, makes sure that it can be used and makes
// it the process-wide backend (leases.Configure). It returns when ctx ends or
// s.Timeout is over, at the latest.
//
// The error says what to do and matches ctx's error if that ended it. Then the
// process-wide backend is as before and nothing stays open; a connection that
// was being made is closed as soon as the driver lets go of it.
func Start(ctx context.Context, s Settings) (*Runtime, error) {
	s = s.trimmed()
	t, err := s.target()
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	r, err := within(bounded, func() (*Runtime, error) { return openUsable(bounded, t) }, func(r *Runtime) { r.close() })
	if err != nil {
		return nil, t.unusable(bounded, err)
	}
	r.target, r.timeout = t, s.timeout()
	if t.kind == "in-process" {
		s.logger().WarnContext(ctx, "leases are kept in this process: one process only; set SM_REDIS_URL or SM_DATABASE_URL to share them")
	} else {
		s.logger().InfoContext(ctx, "leases are kept in a store", "backend", t.kind)
	}
	leases.Configure(r.backend)
	return r, nil
}

// openUsable also refreshes a hold that nobody has. That changes nothing, but
// fails for a role or user that may not, a server that is read-only, or a table
// that is another one.
func openUsable(ctx context.Context, t target) (*Runtime, error) {
	r, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.backend.Refresh(ctx, leases.Hold{Name: "bootstrap", Owner: "nobody", Fence: 1}, time.Second); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// Kind is "redis", "postgres", "sqlite" or "in-process".
func (r *Runtime) Kind() string { return r.target.kind }

// Backend is the backend that Start has configured.
func (r *Runtime) Backend() leases.Backend { return r.backend }

// Redis is the client when Kind is "redis", otherwise nil.
func (r *Runtime) Redis() redis.UniversalClient { return r.redis }

// Pool is the pool when Kind is "postgres", otherwise nil.
func (r *Runtime) Pool() *pgxpool.Pool { return r.pool }

// SQLite is the database when Kind is "sqlite", otherwise nil.
func (r *Runtime) SQLite() *sql.DB { return r.sqlite }

// Health returns nil while the store answers, with its table. It only reads,
// and returns when ctx ends or Settings.Timeout is over, at the latest.
func (r *Runtime) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, r.check(ctx) }, func(struct{}) {})
	if err != nil {
		return r.target.unusable(ctx, err)
	}
	return nil
}

func (r *Runtime) check(ctx context.Context) error {
	switch {
	case r.redis != nil:
		return r.redis.Ping(ctx).Err()
	case r.pool != nil:
		return checkPostgres(ctx, r.pool)
	case r.sqlite != nil:
		return checkSQLite(ctx, r.sqlite)
	}
	return nil
}

const closeTime = 10 * time.Second

// Close closes what Start opened; a second call does nothing more. Release
// what is held before: afterwards it ends with its TTL.
//
// If the backend is still the process-wide one, leases that are acquired
// afterwards fail, until leases.Configure is called: there is no fallback to
// this process only. Close returns when ctx ends, or after 10 s, even if
// connections are in use until then.
func (r *Runtime) Close(ctx context.Context) error {
	if leases.Default() == r.backend {
		leases.Configure(closed{})
	}
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, r.close() }, func(struct{}) {})
	if err != nil {
		return fmt.Errorf("bootstrap: %s: close: %w", r.Kind(), err)
	}
	return nil
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

// within calls do and returns what it returns, or ctx's error when ctx ends
// first: not every call of a driver ends with its ctx. Then late gets the value.
func within[T any](ctx context.Context, do func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result)
	go func() {
		value, err := do()
		select {
		case done <- result{value, err}:
		case <-ctx.Done():
			if err == nil {
				late(value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
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
