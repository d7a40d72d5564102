package main

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"time"

	"cirello.io/pglock"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/leases/redislease"
)

// locker waits for a lock and returns what releases it.
type locker func(ctx context.Context, name string) (release func() error, err error)

const ttl = 10 * time.Second // of every lock

// poolSize is every client's: more than the goroutines that use it.
const poolSize = 20

func redisClient(e *env) (*redis.Client, error) {
	opts, err := redis.ParseURL(e.redisURL)
	if err != nil {
		return nil, err
	}
	opts.PoolSize = poolSize
	return redis.NewClient(opts), nil
}

func pgPool(ctx context.Context, e *env) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(e.databaseURL)
	if err != nil {
		return nil, err
	}
	c.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, c)
}

// newLocker makes a locker on a client of its own.
func newLocker(ctx context.Context, e *env, library string) (locker, error) {
	switch library {
	case "ours on Redis", "redislock", "redsync", "SET NX":
		c, err := redisClient(e)
		if err != nil {
			return nil, err
		}
		return redisLocker(c, library), nil
	case "rueidislock":
		return rueidisLocker(e)
	}
	pool, err := pgPool(ctx, e)
	if err != nil {
		return nil, err
	}
	switch library {
	case "ours on Postgres":
		return ours(pglease.New(pool)), nil
	case "pglock":
		return pgLocker(stdlib.OpenDBFromPool(pool))
	case "advisory lock":
		return advisory(pool), nil
	}
	return nil, fmt.Errorf("unknown library %q", library)
}

func ours(b leases.Backend) locker {
	return func(ctx context.Context, name string) (func() error, error) {
		h := leases.Lease(name, ttl, leases.On(b))
		return func() error { return h.Release(ctx) }, h.Acquire(ctx)
	}
}

// redisLocker has the lockers on go-redis, all with the same client settings.
func redisLocker(c *redis.Client, library string) locker {
	switch library {
	case "redislock":
		l := redislock.New(c)
		// Its README: a linear back-off of 100 ms, here as often as it takes.
		opts := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return func(ctx context.Context, name string) (func() error, error) {
			held, err := l.Obtain(ctx, name, ttl, opts)
			if err != nil {
				return nil, err
			}
			return func() error { return held.Release(ctx) }, nil
		}
	case "redsync":
		r := redsync.New(goredis.NewPool(c))
		return func(ctx context.Context, name string) (func() error, error) {
			// Its default delays of 50 to 250 ms, but as often as it takes.
			m := r.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
			release := func() error {
				_, err := m.UnlockContext(ctx)
				return err
			}
			return release, m.LockContext(ctx)
		}
	case "SET NX":
		return func(ctx context.Context, name string) (func() error, error) {
			return func() error { return c.Del(ctx, name).Err() }, c.SetNX(ctx, name, "x", ttl).Err()
		}
	}
	return ours(redislease.New(c))
}

// rueidisLocker is on one server: a majority of one key.
func rueidisLocker(e *env) (locker, error) {
	opts, err := redis.ParseURL(e.redisURL)
	if err != nil {
		return nil, err
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{opts.Addr}, Password: opts.Password, SelectDB: opts.DB},
		KeyMajority:  1, KeyValidity: ttl,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, name string) (func() error, error) {
		_, release, err := l.WithContext(ctx, name)
		return func() error { release(); return nil }, err
	}, nil
}

// pgLocker has pglock's default lease of 20 s and heartbeat of 5 s.
func pgLocker(db *sql.DB) (locker, error) {
	c, err := pglock.UnsafeNew(db, pglock.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		return nil, err
	}
	if err := c.TryCreateTable(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, name string) (func() error, error) {
		l, err := c.AcquireContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return func() error { return c.ReleaseContext(ctx, l) }, nil
	}, nil
}

// advisory holds a connection for as long as the lock.
func advisory(pool *pgxpool.Pool) locker {
	return func(ctx context.Context, name string) (func() error, error) {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		key := fnv.New64a()
		key.Write([]byte(name))
		id := int64(key.Sum64())
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", id); err != nil {
			return nil, err
		}
		return func() error {
			defer c.Release()
			_, err := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", id)
			return err
		}, nil
	}
}
