package asynqlease_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

// Whatever keeps the lease from being acquired, the task does not run without.
func TestNeverRunsUnguarded(t *testing.T) {
	t.Parallel()
	broken := &troubled{Backend: leases.NewInProcess()}
	broken.acquire.Store(true)
	wrongKind := leases.NewInProcess()
	require.NoError(t, leases.Semaphore("import:42", 2, longTTL, leases.On(wrongKind)).Acquire(t.Context()))
	fine := asynqlease.On(leases.NewInProcess())
	failing := func(context.Context, *asynq.Task) (string, error) { return "import:42", errWork }
	cases := map[string]struct {
		guard asynq.MiddlewareFunc
		is    error
		says  string
	}{
		"no such field":   {asynqlease.Lease(asynqlease.ArgsKey("import", "nothing"), longTTL, fine), nil, `task "task": key "import": the payload has no field "nothing"`},
		"no URL":          {asynqlease.Lease(asynqlease.HostKey("host", "tenant"), longTTL, fine), nil, `the field "tenant" has no http or https URL`},
		"key function":    {asynqlease.Lease(failing, longTTL, fine), errWork, `task "task": work failed`},
		"no key function": {asynqlease.Lease(nil, longTTL, fine), leases.ErrInvalid, "key must not be nil"},
		"the store":       {asynqlease.Lease(byDataset, longTTL, asynqlease.On(broken)), errStore, `leases: acquire "import:42": store: connection refused`},
		"the kind":        {asynqlease.Lease(byDataset, longTTL, asynqlease.On(wrongKind)), leases.ErrKind, `"import:42" is in use as a semaphore`},
		"ttl":             {asynqlease.Lease(byDataset, 0, fine), leases.ErrInvalid, "ttl must be 1ms to 10 years"},
		"ttl too long":    {asynqlease.Lease(byDataset, 11*365*24*time.Hour, fine), leases.ErrInvalid, "ttl must be 1ms to 10 years"},
		"slots":           {asynqlease.Semaphore(byDataset, 0, longTTL, fine), leases.ErrInvalid, "slots must be 1 to 100000, got 0"},
		"too many slots":  {asynqlease.Semaphore(byDataset, 100_001, longTTL, fine), leases.ErrInvalid, "slots must be 1 to 100000, got 100001"},
		"no backend":      {asynqlease.Lease(byDataset, longTTL, asynqlease.On(nil)), leases.ErrInvalid, "backend must be"},
		"OnBusy":          {asynqlease.Lease(byDataset, longTTL, fine, asynqlease.OnBusy(7)), leases.ErrInvalid, "OnBusy must be Reschedule, Skip or Fail, got 7"},
		"Wait":            {asynqlease.Lease(byDataset, longTTL, fine, asynqlease.Wait(-1)), leases.ErrInvalid, "Wait must be 0 or more, got -1ns"},
		"MaxWaiting":      {asynqlease.Lease(byDataset, longTTL, fine, asynqlease.MaxWaiting(-1)), leases.ErrInvalid, "MaxWaiting must be 0 or more, got -1"},
	}
	q := newQueue(t)
	var runs atomic.Int64
	do := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { runs.Add(1); return nil })
	mux := asynq.NewServeMux()
	for name, c := range cases {
		mux.Handle(name, c.guard(do))
	}
	q.work(t, asynq.Config{}, mux)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			task, err := q.client.Enqueue(newTask(name, args{Dataset: 42, Tenant: "hunter2"}), asynq.MaxRetry(1))
			require.NoError(t, err)
			done := q.await(t, task, asynq.TaskStateArchived)
			require.Equal(t, 1, done.Retried)
			require.NotContains(t, done.LastErr, "hunter2")

			err = c.guard(do).ProcessTask(t.Context(), newTask("task", args{Dataset: 42, Tenant: "hunter2"}))
			require.ErrorContains(t, err, c.says)
			require.False(t, asynqlease.IsBusy(err))
			require.NotErrorIs(t, err, leases.ErrNotAcquired)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	require.Zero(t, runs.Load())
}

func TestEmptyKeyNeedsNoLease(t *testing.T) {
	t.Parallel()
	broken := &troubled{Backend: leases.NewInProcess()}
	broken.acquire.Store(true)
	ran := false
	guarded := asynqlease.Lease(always(""), longTTL, asynqlease.On(broken))(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		_, held := leases.FromContext(ctx)
		require.False(t, held)
		ran = true
		return nil
	}))
	require.NoError(t, guarded.ProcessTask(t.Context(), newTask("task", args{})))
	require.True(t, ran)
}

func TestProcessWideBackend(t *testing.T) {
	guarded := asynqlease.Lease(byDataset, longTTL, asynqlease.Wait(time.Millisecond))(asynq.HandlerFunc(nothing))
	for range 2 { // the backend is looked up for each task
		b := leases.NewInProcess()
		leases.Configure(b)
		t.Cleanup(func() { leases.Configure(nil) })
		require.NoError(t, guarded.ProcessTask(t.Context(), newTask("task", args{Dataset: 42})))
		holdAway(t, b, "import:42")
		require.True(t, asynqlease.IsBusy(guarded.ProcessTask(t.Context(), newTask("task", args{Dataset: 42}))))
	}
}

func TestEndedCtxIsNotBusy(t *testing.T) {
	t.Parallel()
	b := leases.NewInProcess()
	holdAway(t, b, "import:42")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	guarded := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.Wait(hang))(asynq.HandlerFunc(nothing))
	for range 2 { // while it waits, and before
		err := guarded.ProcessTask(ctx, newTask("task", args{Dataset: 42}))
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, asynqlease.IsBusy(err))
	}
}

// A grant that comes after the task's ctx has ended is given back.
func TestLateGrantDoesNotStart(t *testing.T) {
	t.Parallel()
	b := leases.NewInProcess()
	ctx, cancel := context.WithCancel(t.Context())
	late := lateBackend{b, cancel}
	guarded := asynqlease.Lease(byDataset, longTTL, asynqlease.On(late))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		panic("it runs")
	}))
	require.ErrorIs(t, guarded.ProcessTask(ctx, newTask("task", args{Dataset: 42})), context.Canceled)
	requireFree(t, b, "import:42")
}

// lateBackend ends the caller's ctx while the grant is on its way.
type lateBackend struct {
	leases.Backend
	cancel func()
}

func (b lateBackend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	g, err := b.Backend.Acquire(ctx, c)
	b.cancel()
	return g, err
}

func TestSemaphoreNeverOverItsSlots(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		const slots = 3
		var inside atOnce
		var runs atomic.Int64
		for range 2 { // two servers of 8 workers
			q.start(t, func(context.Context, *asynq.Task) error {
				defer inside.enter("")()
				runs.Add(1)
				time.Sleep(5 * time.Millisecond) // the work
				return nil
			}, asynqlease.Semaphore(asynqlease.HostKey("host", "url"), slots, longTTL, asynqlease.On(b)))
		}
		spellings := []string{"http://origin.example/a", "https://ORIGIN.example:8443", "http://user@origin.example./?b"}
		var tasks []*asynq.TaskInfo
		for i := range 50 {
			tasks = append(tasks, q.add(t, args{URL: spellings[i%3]}))
		}
		for _, task := range tasks {
			done := q.await(t, task, asynq.TaskStateCompleted)
			require.Zero(t, done.Retried, done.LastErr)
		}
		require.EqualValues(t, 50, runs.Load())
		require.LessOrEqual(t, inside.most[""], slots)
	})
}

// The handler, its key and its fence check are the same on every backend.
func TestSameHandlerOnEveryBackend(t *testing.T) {
	type written struct {
		N     int   `json:"n"`
		Fence int64 `json:"fence"`
	}
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		var dataset resource
		var writes atomic.Int64
		handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			h, ok := leases.FromContext(ctx)
			if !ok {
				return fmt.Errorf("%w: no lease", asynq.SkipRetry)
			}
			if !dataset.write(h.Fence()) {
				return fmt.Errorf("%w: the fence %d is too small", asynq.SkipRetry, h.Fence())
			}
			result, err := json.Marshal(written{int(writes.Add(1)), h.Fence()})
			if err != nil {
				return err
			}
			_, err = task.ResultWriter().Write(result)
			return err
		})
		q.start(t, handler.ProcessTask, asynqlease.Lease(byDataset, longTTL, asynqlease.KeepAlive(), asynqlease.On(b)))
		var tasks []*asynq.TaskInfo
		for range 10 {
			tasks = append(tasks, q.add(t, args{Dataset: 42}))
		}
		fences := map[int64]bool{}
		for _, task := range tasks {
			var w written
			require.NoError(t, json.Unmarshal(q.await(t, task, asynq.TaskStateCompleted).Result, &w))
			require.Less(t, w.Fence, int64(1)<<53)
			fences[w.Fence] = true
		}
		require.Len(t, fences, len(tasks))
		require.EqualValues(t, len(tasks), writes.Load())
	})
}
