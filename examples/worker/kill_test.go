package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/examples/internal/service"
	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
)

const hang = 3 * time.Minute // a bound on a hang, not a measure

// TestKilledWorker kills a worker in the middle of a download that it has a
// lease of ten minutes for. The retry, which the queue brings when it notices,
// has the same owner and goes on at once; a second task for the same URL stays
// out until then.
func TestKilledWorker(t *testing.T) {
	program := build(t)
	t.Run("asynq", func(t *testing.T) {
		url := teststore.RedisURL(t)
		testKilledWorker(t, program, bootstrap.Settings{RedisURL: url})
	})
	t.Run("river on postgres", func(t *testing.T) {
		url := teststore.PostgresURL(t)
		migrate(t, url)
		testKilledWorker(t, program, bootstrap.Settings{DatabaseURL: url})
	})
	t.Run("river on sqlite", func(t *testing.T) {
		url := "sqlite:///" + teststore.SQLitePath(t)
		migrate(t, url)
		testKilledWorker(t, program, bootstrap.Settings{DatabaseURL: url})
	})
}

// TestTerminatedWorker: SIGTERM lets a download finish, and then ends the
// worker.
func TestTerminatedWorker(t *testing.T) {
	program := build(t)
	sqlite := "sqlite:///" + teststore.SQLitePath(t)
	migrate(t, sqlite)
	for name, settings := range map[string]bootstrap.Settings{
		"asynq":           {RedisURL: teststore.RedisURL(t)},
		"river on sqlite": {DatabaseURL: sqlite},
	} {
		t.Run(name, func(t *testing.T) {
			const queue = "terminate"
			_, q := open(t, settings, queue)
			started, finish := make(chan struct{}), make(chan struct{})
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(started)
				<-finish
				fmt.Fprint(w, "the whole file")
			}))
			t.Cleanup(origin.Close)
			dir := t.TempDir()
			cmd := startWorker(t, program, settings, queue, dir)
			require.NoError(t, q.Add(t.Context(), service.Download{URL: origin.URL}))
			wait(t, started, "the download began")

			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			log := cmd.Stderr.(*lockedBuffer)
			require.Eventually(t, func() bool { return strings.Contains(log.String(), "finishing the tasks") }, hang, 10*time.Millisecond)
			close(finish)
			require.NoError(t, cmd.Wait(), "exit 0: %s", log)
			files, err := service.OpenFiles(dir)
			require.NoError(t, err)
			_, ok, err := files.Record(origin.URL)
			require.NoError(t, err)
			require.True(t, ok, "the file is there")
			c, err := q.Counts(t.Context())
			require.NoError(t, err)
			require.Equal(t, service.Counts{Done: 1}, c)
		})
	}
}

// lockedBuffer is written by the process and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "worker")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// giveUp spares the test asynq's own wait: a worker is given up 30 seconds after
// its last sign of life, and the look-out for that comes once a minute. It is
// asynq that then brings the task back.
func giveUp(t *testing.T, c redis.UniversalClient, queue string) {
	lease := "asynq:{" + queue + "}:lease"
	active, err := c.ZRange(t.Context(), lease, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, active, 1, "only the killed attempt")
	past := float64(time.Now().Add(-time.Hour).Unix())
	require.NoError(t, c.ZAdd(t.Context(), lease, redis.Z{Score: past, Member: active[0]}).Err())
}

func testKilledWorker(t *testing.T, program string, settings bootstrap.Settings) {
	const queue = "kill"
	ctx := t.Context()
	rt, q := open(t, settings, queue)

	// The first request never ends; those after it do.
	var requests atomic.Int32
	started := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			fmt.Fprint(w, "half of")
			http.NewResponseController(w).Flush()
			close(started)
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "the whole file")
	}))
	t.Cleanup(origin.Close)
	url := origin.URL + "/file"

	dir := t.TempDir()
	first := startWorker(t, program, settings, queue, dir)
	require.NoError(t, q.Add(ctx, service.Download{URL: url}))
	wait(t, started, "the first attempt began")
	part := awaitPart(t, dir)
	killedFence := fenceOf(t, part)

	require.NoError(t, first.Process.Kill())
	first.Wait()
	require.FileExists(t, part, "the killed attempt's file must be there for the test to mean something")
	lease := leases.Lease(`download:"`+url+`"`, time.Minute, leases.On(rt.Backend()))
	got, err := lease.TryAcquire(ctx)
	require.NoError(t, err)
	require.False(t, got, "the killed attempt's lease must be there for the test to mean something")

	if rt.Redis() != nil {
		giveUp(t, rt.Redis(), queue)
	}

	// The second task for the URL meets the lease of the killed attempt.
	require.NoError(t, q.Add(ctx, service.Download{URL: url}))
	startWorker(t, program, settings, queue, dir)
	require.Eventually(t, func() bool { return putBack(t, rt, queue) }, hang, 50*time.Millisecond, "the second task was not put back")
	require.EqualValues(t, 1, requests.Load(), "the second task ran while the killed attempt held its lease")

	if rt.Redis() != nil {
		// asynq's delay before a retry, half a minute, is not what is tested.
		inspector := asynq.NewInspectorFromRedisClient(rt.Redis())
		require.Eventually(t, func() bool {
			inspector.RunAllRetryTasks(queue)
			return requests.Load() == 2
		}, hang, 500*time.Millisecond, "the retry did not run")
	}
	files, err := service.OpenFiles(dir)
	require.NoError(t, err)
	var rec service.Record
	require.Eventually(t, func() bool {
		r, ok, err := files.Record(url)
		rec = r
		return err == nil && ok
	}, hang, 50*time.Millisecond, "the retry did not finish")
	require.Greater(t, rec.Fence, killedFence)
	data, err := os.ReadFile(filepath.Join(dir, rec.File))
	require.NoError(t, err)
	require.Equal(t, "the whole file", string(data))
	require.NoFileExists(t, part)

	require.Eventually(t, func() bool {
		c, err := q.Counts(ctx)
		require.NoError(t, err)
		return c.Done == 2 && c.Failed == 0
	}, hang, 50*time.Millisecond, "the second task did not finish")
	require.EqualValues(t, 2, requests.Load(), "the second task must find the file that the retry has written")
}

func open(t *testing.T, s bootstrap.Settings, queue string) (*bootstrap.Runtime, service.Queue) {
	t.Helper()
	s.Logger = slog.New(slog.DiscardHandler)
	rt, err := bootstrap.Start(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(func() { rt.Close(context.Background()) })
	q, err := service.Open(t.Context(), rt, queue, s.Logger)
	require.NoError(t, err)
	return rt, q
}

// putBack reports whether a task of the queue was found busy and put back.
func putBack(t *testing.T, rt *bootstrap.Runtime, queue string) bool {
	var n int
	switch {
	case rt.Redis() != nil:
		tasks, err := asynq.NewInspectorFromRedisClient(rt.Redis()).ListRetryTasks(queue)
		require.NoError(t, err)
		n = len(tasks)
	case rt.Pool() != nil:
		require.NoError(t, rt.Pool().QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE metadata ? 'snoozes'`).Scan(&n))
	default:
		require.NoError(t, rt.SQLite().QueryRowContext(t.Context(), `SELECT count(*) FROM river_job WHERE json_extract(metadata, '$.snoozes') > 0`).Scan(&n))
	}
	return n > 0
}

func startWorker(t *testing.T, program string, s bootstrap.Settings, queue, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, "-queue", queue, "-dir", dir, "-ttl", "10m", "-rescue-after", "5s")
	cmd.Env = append(os.Environ(), "SM_REDIS_URL="+s.RedisURL, "SM_DATABASE_URL="+s.DatabaseURL)
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		if t.Failed() {
			t.Logf("worker: %s", log.String())
		}
	})
	return cmd
}

func migrate(t *testing.T, url string) {
	t.Helper()
	cmd := exec.Command("go", "run", "github.com/simple-module/core/migrations/cmd/migrate")
	cmd.Env = append(os.Environ(), "SM_REDIS_URL=", "SM_DATABASE_URL="+url)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hang):
		t.Fatalf("not in time: %s", what)
	}
}

// awaitPart returns the temporary file once it has the first bytes.
func awaitPart(t *testing.T, dir string) (part string) {
	t.Helper()
	require.Eventually(t, func() bool {
		parts, _ := filepath.Glob(filepath.Join(dir, "*", "*.part"))
		if len(parts) != 1 {
			return false
		}
		info, err := os.Stat(parts[0])
		part = parts[0]
		return err == nil && info.Size() > 0
	}, hang, 10*time.Millisecond)
	return part
}

func fenceOf(t *testing.T, part string) int64 {
	t.Helper()
	fields := strings.Split(strings.TrimSuffix(part, ".part"), ".")
	n, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	require.NoError(t, err)
	return n
}
