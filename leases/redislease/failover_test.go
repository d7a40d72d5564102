package redislease_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

// startReplica starts a server that has caught up with the one at primary.
func startReplica(t *testing.T, primary string) (port string) {
	t.Helper()
	port = freePort(t)
	startServer(t, t.TempDir(), port, "--replicaof", "127.0.0.1 "+primary)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + primary})
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "marker", port, 0).Err())
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer r.Close()
	require.Eventually(t, func() bool { return r.Get(t.Context(), "marker").Val() == port }, hang, 10*time.Millisecond)
	return port
}

// TestR5_FailOverToALaggingReplica: the grants that it has not seen are granted
// again, with a larger fence each time.
func TestR5_FailOverToALaggingReplica(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			port := freePort(t)
			startServer(t, t.TempDir(), port)
			c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
			t.Cleanup(func() { c.Close() })
			replica := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + startReplica(t, port)})
			t.Cleanup(func() { replica.Close() })
			b := redislease.New(c)
			acquire(t, b, claim("x", slots, "a"))
			require.NoError(t, replica.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
			var last int64
			for range 20 {
				last = acquire(t, b, claim("x", slots, "a")).Fence
			}
			require.Greater(t, acquire(t, redislease.New(replica), claim("x", slots, "a")).Fence, last)
		})
	}
}

// TestSentinel: after a fail-over the client finds the new primary, and the
// holds that were replicated go on there.
func TestSentinel(t *testing.T) {
	primary := freePort(t)
	stop := startServer(t, t.TempDir(), primary)
	startReplica(t, primary)
	dir, port := t.TempDir(), freePort(t)
	conf := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "sentinel monitor sm 127.0.0.1 %s 1\nsentinel down-after-milliseconds sm 500\nsentinel failover-timeout sm 5000\n", primary), 0o600))
	start(t, port, conf, "--sentinel", "--bind", "127.0.0.1", "--port", port, "--dir", dir)

	sentinel := redis.NewSentinelClient(&redis.Options{Addr: "127.0.0.1:" + port})
	t.Cleanup(func() { sentinel.Close() })
	require.Eventually(t, func() bool { // it can fail over only to a replica that it knows
		replicas, err := sentinel.Replicas(t.Context(), "sm").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok"
	}, hang, 50*time.Millisecond)
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "sm", SentinelAddrs: []string{"127.0.0.1:" + port}})
	t.Cleanup(func() { c.Close() })
	b := redislease.New(c)
	holds := make(map[int]leases.Hold)
	for _, slots := range kinds {
		cl := claim(fmt.Sprint("x", slots), slots, "a")
		holds[slots] = hold(cl, acquire(t, b, cl))
	}
	require.EqualValues(t, 1, c.Wait(t.Context(), 1, hang).Val(), "replicated")
	stop()

	for slots, h := range holds {
		require.Eventually(t, func() bool {
			ok, err := b.Refresh(t.Context(), h, time.Minute)
			if err == nil {
				require.True(t, ok)
			}
			return err == nil
		}, hang, 50*time.Millisecond)
		released(t, b, h, true)
		require.Greater(t, acquire(t, b, claim(h.Name, slots, "b")).Fence, h.Fence)
	}
}
