package redislease_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases/redislease"
)

const childOf = "SM_TEST_CHILD_OF" // the server that a child process is to use

func TestMain(m *testing.M) {
	if addr := os.Getenv(childOf); addr != "" {
		if err := childWork(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childWork is one of each operation.
func childWork(addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	b := redislease.New(c)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for _, slots := range kinds {
		cl := claim(fmt.Sprint("child", slots), slots, "child")
		g, err := b.Acquire(ctx, cl)
		if err != nil || !g.Held {
			return fmt.Errorf("acquire: %+v, %w", g, err)
		}
		if ok, err := b.Refresh(ctx, hold(cl, g), time.Minute); err != nil || !ok {
			return fmt.Errorf("refresh: %v, %w", ok, err)
		}
		if ok, err := b.Release(ctx, hold(cl, g)); err != nil || !ok {
			return fmt.Errorf("release: %v, %w", ok, err)
		}
	}
	return nil
}

// TestCase19_FreshProcess: a process that starts makes one round trip for each
// operation where the server knows the scripts from another process, and
// teaches a server that does not.
func TestCase19_FreshProcess(t *testing.T) {
	port := freePort(t)
	startServer(t, t.TempDir(), port)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	t.Cleanup(func() { c.Close() })
	child := func() (calls map[string]string) {
		require.NoError(t, c.ConfigResetStat(t.Context()).Err())
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childOf+"=127.0.0.1:"+port)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return scriptCalls(t, c)
	}
	operations := fmt.Sprint(3 * len(kinds))
	require.Equal(t, map[string]string{"evalsha": operations, "eval": operations}, child(), "a fresh server")
	require.Equal(t, map[string]string{"evalsha": operations}, child(), "a fresh process")
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	require.Equal(t, map[string]string{"evalsha": operations, "eval": operations}, child(), "both")
}

// scriptCalls is how many scripts were called, by command.
func scriptCalls(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	stats, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	calls := make(map[string]string)
	for _, m := range regexp.MustCompile(`cmdstat_(eval\w*):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		calls[strings.ToLower(m[1])] = m[2]
	}
	return calls
}
