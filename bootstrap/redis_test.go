package bootstrap_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/leases"
)

// TestStartFindsTheCluster behind the URL of one of its servers.
func TestStartFindsTheCluster(t *testing.T) {
	socket := t.TempDir() + "/redis.sock"
	addr, _ := startRedis(t, false, `save ""`, "unixsocket "+socket, "cluster-enabled yes", "cluster-port "+freePort(t), `requirepass "p@ss"`, `masterauth "p@ss"`)
	node := redis.NewClient(&redis.Options{Addr: addr, Password: "p@ss"})
	defer node.Close()
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := node.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, hang, 10*time.Millisecond)

	for _, raw := range []string{"redis://:p%40ss@" + addr, "redis://:p%40ss@" + addr + "?addr=" + addr} {
		rt := start(t, raw)
		require.IsType(t, &redis.ClusterClient{}, rt.Redis())
		require.NoError(t, leases.Lease("{x", time.Minute).Do(t.Context(), func(context.Context) error { return nil }))
		require.NoError(t, rt.Health(t.Context()))
	}

	_, err := bootstrap.Start(t.Context(), bootstrap.Settings{RedisURL: "unix://:p%40ss@" + socket})
	require.ErrorContains(t, err, "one of a Cluster: set SM_REDIS_URL to its host and port")
}

// TestStartAsksTheSentinels for the master, which has a password of its own.
func TestStartAsksTheSentinels(t *testing.T) {
	master, _ := startRedis(t, false, `save ""`, `requirepass "p@ss"`)
	host, port, err := net.SplitHostPort(master)
	require.NoError(t, err)
	sentinel, _ := startRedis(t, true, `requirepass "of the sentinels"`,
		"sentinel monitor main "+host+" "+port+" 1", `sentinel auth-pass main "p@ss"`)
	rt := start(t, "redis://:of%20the%20sentinels@"+sentinel+"/3?master_name=main&password=p%40ss&addr="+closedPort(t))
	require.NoError(t, leases.Lease("x", time.Hour).Acquire(t.Context()))
	require.NoError(t, rt.Health(t.Context()))

	direct := redis.NewClient(&redis.Options{Addr: master, Password: "p@ss", DB: 3})
	defer direct.Close()
	keys, err := direct.Keys(t.Context(), "sm:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
}

// start starts on Redis until the test ends.
func start(t *testing.T, raw string) *bootstrap.Runtime {
	t.Helper()
	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{RedisURL: raw, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		rt.Close(context.Background())
		leases.Configure(nil)
	})
	return rt
}
