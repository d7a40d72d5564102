package teststore

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestRedisURLsAreNotShared(t *testing.T) {
	seen := map[string]bool{}
	for range 4 {
		t.Run("", func(t *testing.T) {
			c := Redis(t)
			n, err := c.DBSize(t.Context()).Result()
			require.NoError(t, err)
			require.Zero(t, n, "the database is not empty")
			require.NoError(t, c.Set(t.Context(), "left behind", 1, 0).Err())
		})
	}
	for range 4 {
		u := RedisURL(t)
		require.False(t, seen[u], "%s was given twice", u)
		seen[u] = true
	}
}

func TestPostgresURLIsDropped(t *testing.T) {
	var u string
	t.Run("", func(t *testing.T) {
		u = PostgresURL(t)
		c, err := pgx.Connect(t.Context(), u)
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
		require.NoError(t, Postgres(t).Ping(t.Context()))
	})
	_, err := pgx.Connect(context.Background(), u)
	require.ErrorContains(t, err, "does not exist")
}

func TestRedisURLLeavesForeignDataAlone(t *testing.T) {
	c := Redis(t)
	db := c.Options().DB
	opts, err := redis.ParseURL(os.Getenv("SM_TEST_REDIS_URL"))
	require.NoError(t, err)
	opts.DB = 0
	claims := redis.NewClient(opts)
	defer claims.Close()

	// What a database looks like that no test has written to.
	key := fmt.Sprintf("sm:teststore:%d", db)
	require.NoError(t, c.Set(t.Context(), "foreign", 1, 0).Err())
	require.NoError(t, claims.SRem(t.Context(), used, db).Err())
	require.NoError(t, claims.Del(t.Context(), key).Err())
	require.False(t, claim(t.Context(), t, claims, opts, db))
	require.EqualValues(t, 1, c.Exists(t.Context(), "foreign").Val())

	// Ours again for the cleanup. Another test may just be looking at it.
	require.Eventually(t, func() bool {
		return claims.SetNX(t.Context(), key, os.Getpid(), time.Hour).Val()
	}, timeout, time.Millisecond)
	require.NoError(t, claims.SAdd(t.Context(), used, db).Err())
}

type fatalTB struct {
	testing.TB
	message string
}

func (f *fatalTB) Helper() {}
func (f *fatalTB) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestMissingServerFails(t *testing.T) {
	for variable, store := range map[string]func(testing.TB) string{
		"SM_TEST_REDIS_URL": RedisURL, "SM_TEST_DATABASE_URL": PostgresURL,
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "")
			f := &fatalTB{TB: t}
			done := make(chan struct{})
			go func() { defer close(done); store(f) }()
			<-done
			require.Contains(t, f.message, variable)
			require.Contains(t, f.message, "make test")
			require.Contains(t, f.message, "scripts/with-servers go test ./...")
		})
	}
}
