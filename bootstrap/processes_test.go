package bootstrap_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/leases"
)

// TestMain is also the web and the worker process of TestWebAndWorker.
func TestMain(m *testing.M) {
	if os.Getenv("BOOTSTRAP_ROLE") == "" {
		for _, v := range []string{"SM_REDIS_URL", "SM_DATABASE_URL", "SM_REDIS_PREFIX"} {
			os.Unsetenv(v) // the tests set their own
		}
		redis.SetLogger(&redisLog)
		os.Exit(m.Run())
	}
	if err := process(os.Stdin, os.Stdout); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// process does what it reads: "try NAME" and "release NAME", and says how it
// went and with which fence.
func process(in io.Reader, out io.Writer) error {
	ctx := context.Background()
	settings, err := bootstrap.FromEnv()
	if err != nil {
		return err
	}
	rt, err := bootstrap.Start(ctx, settings)
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	fmt.Fprintln(out, "ready", rt.Kind())
	held := map[string]*leases.Handle{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		command, name, _ := strings.Cut(lines.Text(), " ")
		h := held[name]
		if h == nil {
			h = leases.Lease(name, ttl, leases.KeepAlive())
			held[name] = h
		}
		switch command {
		case "try":
			ok, err := h.TryAcquire(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(out, ok, h.Fence())
		case "release":
			if err := h.Release(ctx); err != nil {
				return err
			}
			fmt.Fprintln(out, "released")
		}
	}
	return nil
}

const ttl = time.Second

type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func startChild(t *testing.T, role string, s bootstrap.Settings) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BOOTSTRAP_ROLE="+role, "SM_REDIS_URL="+s.RedisURL, "SM_DATABASE_URL="+s.DatabaseURL)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &child{t, cmd, in, bufio.NewScanner(out)}
}

func (c *child) line() string {
	c.t.Helper()
	require.True(c.t, c.out.Scan(), "the process has ended")
	return c.out.Text()
}

func (c *child) ask(command string) string {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	require.NoError(c.t, err)
	return c.line()
}

// TestWebAndWorker: two processes with one environment exclude each other. A
// killed one's lease ends with its TTL.
func TestWebAndWorker(t *testing.T) {
	for kind, settings := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := settings(t)
			web, worker := startChild(t, "web", s), startChild(t, "worker", s)
			require.Equal(t, "ready "+kind, web.line())
			require.Equal(t, "ready "+kind, worker.line())

			fence := func(answer string) (n int64) {
				t.Helper()
				_, err := fmt.Sscanf(answer, "true %d", &n)
				require.NoError(t, err, answer)
				return n
			}
			first := fence(web.ask("try import:42"))
			require.Equal(t, "false 0", worker.ask("try import:42"))
			require.Equal(t, "released", web.ask("release import:42"))
			second := fence(worker.ask("try import:42"))
			require.Greater(t, second, first)
			require.True(t, strings.HasPrefix(web.ask("try import:42"), "false "))

			require.NoError(t, worker.cmd.Process.Kill())
			var answer string
			require.Eventually(t, func() bool {
				answer = web.ask("try import:42")
				return strings.HasPrefix(answer, "true ")
			}, hang, 20*time.Millisecond)
			require.Greater(t, fence(answer), second)
		})
	}
}
