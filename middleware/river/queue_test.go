package riverlease_test

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
)

const (
	hang    = time.Minute      // a bound on a hang, not a measure
	longTTL = 10 * time.Minute // nothing expires during a test
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they mostly wait for River's intervals
		panic(err)
	}
	os.Exit(m.Run())
}

// task is the one kind of job; what its worker does is the test's.
type task struct {
	Dataset int    `json:"dataset"`
	Tenant  string `json:"tenant"`
	URL     string `json:"url,omitempty"`
}

func (task) Kind() string { return "task" }

type worker struct {
	river.WorkerDefaults[task]
	do     func(ctx context.Context, job *river.Job[task]) error
	guards []rivertype.WorkerMiddleware
	retry  time.Duration
}

func (w *worker) Work(ctx context.Context, job *river.Job[task]) error { return w.do(ctx, job) }

func (w *worker) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return w.guards }

func (w *worker) NextRetry(*river.Job[task]) time.Time { return time.Now().Add(w.retry) }

func workers(w *worker) *river.Workers {
	if w.retry == 0 {
		w.retry = 10 * time.Millisecond // River's own policy begins with a second
	}
	all := river.NewWorkers()
	river.AddWorker(all, w)
	return all
}

// queue is River on one of its databases.
type queue struct {
	add  func(t *testing.T, args river.JobArgs, opts *river.InsertOpts) *rivertype.JobRow
	get  func(t *testing.T, id int64) *rivertype.JobRow
	work func(t *testing.T, cfg *river.Config) *running
}

// running is a client that works jobs until the test's end.
type running struct {
	stop   func() // waits for the jobs
	cancel func() // cancels their ctx, then waits
}

var queues = map[string]func(t *testing.T) *queue{
	"Postgres": func(t *testing.T) *queue { return newQueue(t, riverpgxv5.New(teststore.Postgres(t))) },
	"SQLite": func(t *testing.T) *queue {
		db, err := sqlitelease.Open(teststore.SQLitePath(t)) // WAL, busy_timeout, immediate transactions
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return newQueue(t, riversqlite.New(db))
	},
}

// onQueues runs the test with River on each database.
func onQueues(t *testing.T, test func(t *testing.T, q *queue)) {
	t.Helper()
	t.Parallel()
	for database, open := range queues {
		t.Run("River on "+database, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func newQueue[TTx any](t *testing.T, driver riverdriver.Driver[TTx]) *queue {
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	insert, err := river.NewClient(driver, &river.Config{Logger: quiet})
	require.NoError(t, err)

	return &queue{
		add: func(t *testing.T, args river.JobArgs, opts *river.InsertOpts) *rivertype.JobRow {
			t.Helper()
			res, err := insert.Insert(context.Background(), args, opts)
			require.NoError(t, err)
			return res.Job
		},
		get: func(t *testing.T, id int64) *rivertype.JobRow {
			t.Helper()
			job, err := insert.JobGet(context.Background(), id)
			require.NoError(t, err)
			return job
		},
		work: func(t *testing.T, cfg *river.Config) *running {
			t.Helper()
			if cfg.Queues == nil {
				cfg.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 8}}
			}
			cfg.Logger = quiet
			cfg.FetchCooldown, cfg.FetchPollInterval = 5*time.Millisecond, 20*time.Millisecond
			cfg.TestOnly = true // starts at once
			client, err := river.NewClient(driver, cfg)
			require.NoError(t, err)
			require.NoError(t, client.Start(context.Background()))
			var once sync.Once
			end := func(how func(context.Context) error) func() {
				return func() {
					once.Do(func() {
						ctx, cancel := context.WithTimeout(context.Background(), hang)
						defer cancel()
						require.NoError(t, how(ctx))
					})
				}
			}
			r := &running{stop: end(client.Stop), cancel: end(client.StopAndCancel)}
			t.Cleanup(r.cancel)
			return r
		},
	}
}

// start works the queue with one function behind guards.
func (q *queue) start(t *testing.T, do func(context.Context, *river.Job[task]) error, guards ...rivertype.WorkerMiddleware) *running {
	t.Helper()
	return q.work(t, &river.Config{Workers: workers(&worker{do: do, guards: guards})})
}

// await returns the job once it is in the state.
func (q *queue) await(t *testing.T, id int64, state rivertype.JobState) *rivertype.JobRow {
	t.Helper()
	var job *rivertype.JobRow
	require.Eventually(t, func() bool {
		job = q.get(t, id)
		return job.State == state
	}, hang, 5*time.Millisecond, "job %d did not become %s", id, state)
	return job
}

func (q *queue) snoozes(t *testing.T, id int64) int {
	t.Helper()
	var metadata struct{ Snoozes int }
	require.NoError(t, json.Unmarshal(q.get(t, id).Metadata, &metadata))
	return metadata.Snoozes
}

// awaitSnoozes returns once the job has come back n times without having run.
func (q *queue) awaitSnoozes(t *testing.T, id int64, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return q.snoozes(t, id) >= n }, hang, 5*time.Millisecond, "job %d was not snoozed", id)
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

// requireFree shows that the lease is free, and leaves it free.
func requireFree(t *testing.T, b leases.Backend, name string) {
	t.Helper()
	h := leases.Lease(name, longTTL, leases.On(b))
	ok, err := h.TryAcquire(t.Context())
	require.NoError(t, err)
	require.True(t, ok, "%s is held", name)
	require.NoError(t, h.Release(t.Context()))
}

func requireHeld(t *testing.T, b leases.Backend, name string) {
	t.Helper()
	ok, err := leases.Lease(name, longTTL, leases.On(b)).TryAcquire(t.Context())
	require.NoError(t, err)
	require.False(t, ok, "%s is free", name)
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
