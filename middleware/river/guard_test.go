package riverlease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/testbackends"
	"github.com/simple-module/core/leases"
	riverlease "github.com/simple-module/core/middleware/river"
)

// Whatever keeps the lease from being acquired, the job does not run without.
func TestNeverRunsUnguarded(t *testing.T) {
	broken := &troubled{Backend: leases.NewInProcess()}
	broken.acquire.Store(true)
	fine := riverlease.On(leases.NewInProcess())
	cases := map[string]struct {
		guard rivertype.WorkerMiddleware
		says  string
	}{
		"no such field":   {riverlease.Lease(riverlease.ArgsKey("import", "nothing"), longTTL, fine), `of kind "task": key "import": the payload has no field "nothing"`},
		"no URL":          {riverlease.Lease(riverlease.HostKey("host", "tenant"), longTTL, fine), `the field "tenant" has no http or https URL`},
		"no key function": {riverlease.Lease(nil, longTTL, fine), "key must not be nil"},
		"the store":       {riverlease.Lease(byDataset, longTTL, riverlease.On(broken)), `leases: acquire "import:42": store: connection refused`},
		"ttl":             {riverlease.Lease(byDataset, 0, fine), "ttl must be 1ms to 10 years"},
		"slots":           {riverlease.Semaphore(byDataset, 0, longTTL, fine), "slots must be 1 to 100000"},
		"no backend":      {riverlease.Lease(byDataset, longTTL, riverlease.On(nil)), "backend must be"},
		"OnBusy":          {riverlease.Lease(byDataset, longTTL, fine, riverlease.OnBusy(7)), "OnBusy must be Reschedule, Skip or Fail, got 7"},
		"Wait":            {riverlease.Lease(byDataset, longTTL, fine, riverlease.Wait(-1)), "Wait must be 0 or more"},
		"MaxWaiting":      {riverlease.Lease(byDataset, longTTL, fine, riverlease.MaxWaiting(-1)), "MaxWaiting must be 0 or more"},
	}
	onQueues(t, func(t *testing.T, q *queue) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				var runs atomic.Int64
				q.start(t, func(context.Context, *river.Job[task]) error { runs.Add(1); return nil }, c.guard)
				job := q.add(t, task{Dataset: 42, Tenant: "hunter2"}, &river.InsertOpts{MaxAttempts: 2})
				done := q.await(t, job.ID, rivertype.JobStateDiscarded)
				require.Zero(t, runs.Load())
				require.Len(t, done.Errors, 2)
				require.Contains(t, done.Errors[0].Error, c.says)
				require.NotContains(t, done.Errors[0].Error, "hunter2")
			})
		}
	})
}

func TestEmptyKeyNeedsNoLease(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		held := make(chan bool, 1)
		broken := &troubled{Backend: leases.NewInProcess()}
		broken.acquire.Store(true)
		q.start(t, func(ctx context.Context, _ *river.Job[task]) error {
			_, ok := leases.FromContext(ctx)
			held <- ok
			return nil
		}, riverlease.Lease(func(*rivertype.JobRow) (string, error) { return "", nil }, longTTL, riverlease.On(broken)))
		q.await(t, q.add(t, task{}, nil).ID, rivertype.JobStateCompleted)
		require.False(t, <-held)
	})
}

// Each of the places where River takes a middleware, outermost first.
func TestPlacesOfAMiddleware(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		taken := make(chan string, 9)
		at := func(name string) rivertype.WorkerMiddleware {
			return riverlease.Lease(func(*rivertype.JobRow) (string, error) {
				taken <- name
				return name, nil
			}, longTTL, riverlease.On(b))
		}
		q.work(t, &river.Config{
			Plugins:    []rivertype.Plugin{at("plugin").(rivertype.Plugin)},
			Middleware: []rivertype.Middleware{at("client 1"), at("client 2")},
			Workers: workers(&worker{
				guards: []rivertype.WorkerMiddleware{at("worker 1"), at("worker 2")},
				do: func(ctx context.Context, _ *river.Job[task]) error {
					h, _ := leases.FromContext(ctx)
					taken <- "inside " + h.Name()
					return nil
				},
			}),
		})
		q.await(t, q.add(t, task{}, nil).ID, rivertype.JobStateCompleted)
		close(taken)
		var order []string
		for name := range taken {
			order = append(order, name)
		}
		require.Equal(t, []string{"worker 1", "worker 2", "plugin", "client 1", "client 2", "inside client 2"}, order)
		for _, name := range order[:5] {
			requireFree(t, b, name)
		}
	})
}

func TestSemaphoreNeverOverItsSlots(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		const slots, jobs = 3, 50
		var inside atOnce
		do := func(context.Context, *river.Job[task]) error {
			defer inside.enter("")()
			time.Sleep(5 * time.Millisecond) // the work
			return nil
		}
		perHost := func() rivertype.WorkerMiddleware {
			return riverlease.Semaphore(riverlease.HostKey("host", "url"), slots, longTTL, riverlease.On(b), riverlease.MaxWaiting(16), riverlease.Wait(hang))
		}
		for range 2 { // two clients of 8 workers
			q.start(t, do, perHost())
		}
		spellings := []string{"http://origin.example/a", "https://ORIGIN.example:8443", "http://user@origin.example./?b"}
		var ids []int64
		for i := range jobs {
			ids = append(ids, q.add(t, task{URL: spellings[i%3]}, nil).ID)
		}
		for _, id := range ids {
			require.Equal(t, 1, q.await(t, id, rivertype.JobStateCompleted).Attempt)
		}
		require.LessOrEqual(t, inside.most[""], slots)
	})
}

// rawTask is a task with args as another program may have written them.
type rawTask string

func (rawTask) Kind() string { return "task" }

func (r rawTask) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Postgres rewrites args as JSONB, SQLite does not: the keys are the same.
func TestKeysAreTheSameOnBothDatabases(t *testing.T) {
	key := riverlease.ArgsKey("k", "dataset", "tenant")
	onQueues(t, func(t *testing.T, q *queue) {
		for args, want := range map[string]string{
			`{"tenant":"a\u0062\/é","dataset":1e2}`:                        `k:100,"ab/é"`,
			`{"dataset":  100.0 , "tenant": "\u00e9\ud83d\ude00"}`:         `k:100,"é😀"`,
			`{"tenant":"y","tenant":"x","dataset":9007199254740993}`:       `k:9007199254740993,"x"`,
			`{"tenant":"x","dataset":-0}`:                                  `k:0,"x"`,
			`{"tenant":"x","dataset":{"bb":1.50,"a":[1E1,{"z":1,"y":2}]}}`: `k:{"a":[10,{"y":2,"z":1}],"bb":1.5},"x"`,
			`{"tenant":"x","dataset":1e400}`:                               `k:1e400,"x"`,
			`{"tenant":"x","dataset":123456789012345678901234567890.10}`:   `k:123456789012345678901234567890.1,"x"`,
		} {
			got, err := key(q.get(t, q.add(t, rawTask(args), nil).ID))
			require.NoError(t, err)
			require.Equal(t, want, got, args)
		}
	})
}

// The same worker behind the process's own backend, whichever that is.
func TestSameWorkerOnEachBackend(t *testing.T) {
	t.Cleanup(func() { leases.Configure(nil) })
	once := riverlease.Lease(byDataset, longTTL, riverlease.KeepAlive())
	var last atomic.Int64
	work := func(ctx context.Context, job *river.Job[task]) error {
		h, ok := leases.FromContext(ctx)
		if !ok || last.Swap(h.Fence()) >= h.Fence() || h.Name() != "import:42" {
			return errWork
		}
		return nil
	}
	for kind, open := range testbackends.All { // fences grow from one to the next (R5)
		t.Run("leases on "+kind, func(t *testing.T) {
			leases.Configure(open(t))
			for database, open := range queues {
				q := open(t)
				client := q.start(t, work, once)
				for range 3 {
					job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
					require.Empty(t, q.await(t, job.ID, rivertype.JobStateCompleted).Errors, database)
				}
				client.stop()
				requireFree(t, leases.Default(), "import:42")
			}
		})
	}
}
