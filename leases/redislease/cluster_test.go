package redislease_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/redislease"
)

// oddNames try to move or to empty the hash tag, or to look like another name.
var oddNames = []string{
	"}", "{", "{}", "{}x", "x{}", "a{b}c", "}{", "}}", "{{", "{{a}}", "{a}{b}", "a}b{c",
	"%", "%7D", "%7d", "%257D", "%25", "x:fence", "x}:fence", ":free", "x", "import:42", "{user}:1",
	"\n", "\r\n", " ", "ü", "日本", `"`, "*", "[a-z]?", strings.Repeat("{", 512), strings.Repeat("}", 512), strings.Repeat("é", 256),
}

// startCluster starts three masters that share the slots.
func startCluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for range 3 {
		port := freePort(t)
		startServer(t, t.TempDir(), port, "--cluster-enabled", "yes")
		addrs = append(addrs, "127.0.0.1:"+port)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append(append([]string{"--cluster", "create"}, addrs...), "--cluster-replicas", "0", "--cluster-yes")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { c.Close() })
	require.Eventually(t, func() bool {
		ok := true
		for _, addr := range addrs {
			node := redis.NewClient(&redis.Options{Addr: addr})
			info, err := node.ClusterInfo(t.Context()).Result()
			node.Close()
			ok = ok && err == nil && strings.Contains(info, "cluster_state:ok")
		}
		return ok
	}, hang, 50*time.Millisecond)
	return c
}

// TestCase20_Cluster: every name works on a Cluster, where a script's keys must
// lie in one slot.
func TestCase20_Cluster(t *testing.T) {
	c := startCluster(t)
	b := redislease.New(c)
	nodes := make(map[string]bool)
	for _, name := range oddNames {
		for kind, slots := range kinds {
			t.Run(fmt.Sprintf("%.20q %s", name, kind), func(t *testing.T) {
				cl := claim(name, slots, "a")
				g := acquire(t, b, cl)
				require.Greater(t, acquire(t, b, cl).Fence, g.Fence)
				refreshed(t, b, hold(cl, g), false)
				g = acquire(t, b, cl)
				refreshed(t, b, hold(cl, g), true)
				other := claim(name, max(slots, 1), "b")
				if slots > 0 {
					other.Slots = 0
				}
				_, err := b.Acquire(t.Context(), other)
				require.ErrorIs(t, err, leases.ErrKind)
				released(t, b, hold(cl, g), true)
				g = acquire(t, b, cl)

				// What it wrote: the hold, the fence and the release, in one slot.
				keys := allKeys(t, c, nodes)
				require.Len(t, keys, 3, "%q", keys)
				slot := c.ClusterKeySlot(t.Context(), keys[0]).Val()
				for _, key := range keys {
					require.Equal(t, slot, c.ClusterKeySlot(t.Context(), key).Val(), "%q", keys)
				}
				released(t, b, hold(cl, g), true)
				require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
					return node.FlushAll(ctx).Err()
				}))
			})
		}
	}
	require.Len(t, nodes, 3, "the names lie on all of the nodes")
	t.Run("conformance", func(t *testing.T) {
		leasetest.Run(t, func(*testing.T) leases.Backend { return redislease.New(c) })
	})
	t.Run("wake-up", func(t *testing.T) {
		here := redislease.New(c)
		for _, name := range oddNames {
			cl := claim(name, 0, "a")
			h := hold(cl, acquire(t, b, cl))
			called := inLine(t, here, cl, "ticket")
			released(t, b, h, true)
			await(t, called, "the turn")
		}
	})
}

func allKeys(t *testing.T, c *redis.ClusterClient, nodes map[string]bool) (all []string) {
	t.Helper()
	var mu sync.Mutex
	require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		if len(keys) > 0 {
			nodes[node.Options().Addr] = true
		}
		return err
	}))
	return all
}
