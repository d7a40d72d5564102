package teststore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
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
