// Package teststore gives each test a store of its own on the real servers
// that SM_TEST_REDIS_URL and SM_TEST_DATABASE_URL name. A test that needs a
// server which is not there fails; it is never skipped.
package teststore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const timeout = time.Minute // a bound on a hang, not a measure

func server(t testing.TB, variable string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		t.Fatalf("%s is not set: run `make test`, or `scripts/with-servers go test ./...`, or set it to a server for tests", variable)
	}
	return v
}

// used is the set, in database 0, of the databases that tests have written to.
// One that is not empty and not in it holds somebody's data: it is left alone.
const used = "sm:teststore:used"

// RedisURL returns the URL of an empty logical database, not 0, that no other
// test uses until this one ends.
func RedisURL(t testing.TB) string {
	t.Helper()
	base := server(t, "SM_TEST_REDIS_URL")
	opts, err := redis.ParseURL(base)
	require.NoError(t, err, "SM_TEST_REDIS_URL")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	opts.DB = 0
	claims := redis.NewClient(opts)
	t.Cleanup(func() { claims.Close() })
	conf, err := claims.ConfigGet(ctx, "databases").Result()
	require.NoError(t, err)
	databases, err := strconv.Atoi(conf["databases"])
	require.NoError(t, err)

	for {
		for db := 1; db < databases; db++ {
			if !claim(ctx, t, claims, opts, db) {
				continue
			}
			u, err := url.Parse(base)
			require.NoError(t, err)
			u.Path = "/" + strconv.Itoa(db)
			return u.String()
		}
		time.Sleep(50 * time.Millisecond) // all taken by other tests
		require.NoError(t, ctx.Err(), "SM_TEST_REDIS_URL: none of its %d databases is free and empty", databases)
	}
}

// claim takes database db for the test, emptied, unless another test has it or
// it holds somebody's data.
func claim(ctx context.Context, t testing.TB, claims *redis.Client, opts *redis.Options, db int) bool {
	key := fmt.Sprintf("sm:teststore:%d", db)
	free, err := claims.SetNX(ctx, key, os.Getpid(), time.Hour).Result()
	require.NoError(t, err)
	if !free {
		return false
	}
	own := *opts
	own.DB = db
	client := redis.NewClient(&own)
	defer client.Close()
	size, err := client.DBSize(ctx).Result()
	require.NoError(t, err)
	left, err := claims.SIsMember(ctx, used, db).Result()
	require.NoError(t, err)
	if size > 0 && !left {
		require.NoError(t, claims.Del(ctx, key).Err())
		return false
	}
	require.NoError(t, claims.SAdd(ctx, used, db).Err())
	require.NoError(t, client.FlushDB(ctx).Err())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		client := redis.NewClient(&own)
		defer client.Close()
		if err := client.FlushDB(ctx).Err(); err != nil {
			t.Logf("redis database %d keeps its data: %v", db, err)
			return
		}
		claims.SRem(ctx, used, db)
		claims.Del(ctx, key)
	})
	return true
}

// Redis returns a client for a database as RedisURL gives it.
func Redis(t testing.TB) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(RedisURL(t))
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { c.Close() })
	return c
}

// PostgresURL returns the URL of a fresh database, which is dropped when the
// test ends.
func PostgresURL(t testing.TB) string {
	t.Helper()
	base := server(t, "SM_TEST_DATABASE_URL")
	u, err := url.Parse(base)
	require.NoError(t, err, "SM_TEST_DATABASE_URL")
	require.Contains(t, []string{"postgres", "postgresql"}, u.Scheme, "SM_TEST_DATABASE_URL is not a postgres:// URL")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	admin, err := pgx.Connect(ctx, base)
	require.NoError(t, err)
	defer admin.Close(context.Background())

	name := "sm_test_" + strings.ToLower(rand.Text())
	for {
		_, err = admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55006" { // object_in_use: another CREATE DATABASE
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		admin, err := pgx.Connect(ctx, base)
		if err != nil {
			t.Logf("database %s stays: %v", name, err)
			return
		}
		defer admin.Close(ctx)
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Logf("database %s stays: %v", name, err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

// Postgres returns a pool on a database as PostgresURL gives it.
func Postgres(t testing.TB) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), PostgresURL(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// SQLitePath returns the path of a file that does not exist yet, in a folder
// that goes with the test.
func SQLitePath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "leases.db")
}
