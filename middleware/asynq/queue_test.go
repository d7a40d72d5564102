package asynqlease_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

const (
	hang    = time.Minute      // a bound on a hang, not a measure
	longTTL = 10 * time.Minute // nothing expires during a test
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they mostly wait for asynq's intervals
		panic(err)
	}
	os.Exit(m.Run())
}

// args are the payload of the tests' tasks.
type args struct {
	Dataset int    `json:"dataset"`
	Tenant  string `json:"tenant"`
	URL     string `json:"url,omitempty"`
}

func argsOf(t *asynq.Task) (a args) {
	if err := json.Unmarshal(t.Payload(), &a); err != nil {
		panic(err)
	}
	return a
}

func newTask(kind string, a args) *asynq.Task {
	payload, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return asynq.NewTask(kind, payload)
}

// queue is asynq on a Redis database of its own.
type queue struct {
	redis     *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	c := teststore.Redis(t)
	return &queue{redis: c, client: asynq.NewClientFromRedisClient(c), inspector: asynq.NewInspectorFromRedisClient(c)}
}

// add enqueues a task of the kind "task"; it stays when it is done.
func (q *queue) add(t *testing.T, a args, opts ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	info, err := q.client.EnqueueContext(context.Background(), newTask("task", a), append([]asynq.Option{asynq.Retention(time.Hour)}, opts...)...)
	require.NoError(t, err)
	return info
}

func (q *queue) get(t *testing.T, task *asynq.TaskInfo) *asynq.TaskInfo {
	t.Helper()
	info, err := q.inspector.GetTaskInfo(task.Queue, task.ID)
	require.NoError(t, err)
	return info
}

// await returns the task once it is in the state.
func (q *queue) await(t *testing.T, task *asynq.TaskInfo, state asynq.TaskState) *asynq.TaskInfo {
	t.Helper()
	var info *asynq.TaskInfo
	require.Eventually(t, func() bool {
		info = q.get(t, task)
		if info.State == asynq.TaskStateArchived && state != asynq.TaskStateArchived {
			t.Fatalf("archived: %s", info.LastErr)
		}
		return info.State == state
	}, hang, 5*time.Millisecond, "the task did not become %v", state)
	return info
}

// server works a queue until the test's end.
type server struct {
	stop func() // waits for the tasks, a ShutdownTimeout at most
}

// work starts a server with cfg. A task that fails is retried at once unless
// cfg says otherwise.
func (q *queue) work(t *testing.T, cfg asynq.Config, h asynq.Handler) *server {
	t.Helper()
	return workOn(t, q.redis, cfg, h)
}

func workOn(t *testing.T, c redis.UniversalClient, cfg asynq.Config, h asynq.Handler) *server {
	t.Helper()
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 8
	}
	if cfg.RetryDelayFunc == nil {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}
	cfg.TaskCheckInterval = 5 * time.Millisecond
	cfg.DelayedTaskCheckInterval = 20 * time.Millisecond
	cfg.Logger, cfg.LogLevel = silent{}, asynq.FatalLevel
	asynqlease.Configure(&cfg)
	srv := asynq.NewServerFromRedisClient(c, cfg)
	require.NoError(t, srv.Start(h))
	stop := sync.OnceFunc(srv.Shutdown)
	t.Cleanup(stop)
	return &server{stop: stop}
}

// start works the queue with one function behind guards, the outermost first.
func (q *queue) start(t *testing.T, do asynq.HandlerFunc, guards ...asynq.MiddlewareFunc) *server {
	t.Helper()
	return q.work(t, asynq.Config{}, behind(do, guards...))
}

func behind(do asynq.HandlerFunc, guards ...asynq.MiddlewareFunc) asynq.Handler {
	mux := asynq.NewServeMux()
	mux.Use(guards...)
	mux.Handle("task", do)
	return mux
}

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// awaitBusy returns once the task has come back n times without having run.
// Only busy tasks are in errs.
func awaitBusy(t *testing.T, errs <-chan error, n int) {
	t.Helper()
	for range n {
		err := receive(t, errs, "a busy task")
		require.True(t, asynqlease.IsBusy(err), "%v", err)
	}
}

// reported is an ErrorHandler that passes the errors on.
func reported() (asynq.ErrorHandler, <-chan error) {
	errs := make(chan error, 1000)
	return asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { errs <- err }), errs
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(hang):
		require.FailNow(t, "it did not come", what)
		panic("unreachable")
	}
}

// holdAway acquires the name for somebody else.
func holdAway(t *testing.T, b leases.Backend, name string) *leases.Handle {
	t.Helper()
	h := leases.Lease(name, longTTL, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))
	return h
}

func isFree(t *testing.T, h *leases.Handle) bool {
	t.Helper()
	ok, err := h.TryAcquire(t.Context())
	require.NoError(t, err)
	if ok {
		require.NoError(t, h.Release(t.Context()))
	}
	return ok
}

func requireFree(t *testing.T, b leases.Backend, name string) {
	t.Helper()
	require.True(t, isFree(t, leases.Lease(name, longTTL, leases.On(b))), "%s is held", name)
}

func requireHeld(t *testing.T, b leases.Backend, name string) {
	t.Helper()
	require.False(t, isFree(t, leases.Lease(name, longTTL, leases.On(b))), "%s is free", name)
}

// atOnce counts who is inside, by key.
type atOnce struct {
	mu        sync.Mutex
	now, most map[string]int
}

func (a *atOnce) enter(key string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.now, a.most = map[string]int{}, map[string]int{}
	}
	a.now[key]++
	a.most[key] = max(a.most[key], a.now[key])
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.now[key]--
	}
}

var errWork = errors.New("work failed")

var (
	byDataset = asynqlease.ArgsKey("import", "dataset")
	byTenant  = asynqlease.ArgsKey("tenant", "tenant")
)

func always(name string) asynqlease.KeyFunc {
	return func(context.Context, *asynq.Task) (string, error) { return name, nil }
}

func nothing(context.Context, *asynq.Task) error { return nil }
