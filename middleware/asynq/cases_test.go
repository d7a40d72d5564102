package asynqlease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

// asynq would archive whatever comes back from a task without retries.
func TestCase01TasksWithoutRetriesAllRun(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		var inside atOnce
		var runs atomic.Int64
		q.start(t, func(context.Context, *asynq.Task) error {
			defer inside.enter("")()
			runs.Add(1)
			time.Sleep(2 * time.Millisecond) // the work
			return nil
		}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.MaxWaiting(1), asynqlease.Wait(time.Millisecond)))
		var tasks []*asynq.TaskInfo
		for range 30 {
			tasks = append(tasks, q.add(t, args{Dataset: 42}, asynq.MaxRetry(0)))
		}
		for _, task := range tasks {
			q.await(t, task, asynq.TaskStateCompleted)
		}
		require.EqualValues(t, 30, runs.Load())
		require.Equal(t, 1, inside.most[""])
		requireFree(t, b, "import:42")
	})
}

func TestCase01BusyOnTheLastAttemptIsNotLost(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		store := &troubled{Backend: b}
		var runs atomic.Int64
		q.work(t, asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }},
			behind(func(context.Context, *asynq.Task) error {
				if runs.Add(1) == 1 {
					return errWork
				}
				return nil
			}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(store), asynqlease.Wait(0))))
		task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(1))
		require.Equal(t, 1, q.await(t, task, asynq.TaskStateRetry).Retried)

		other := holdAway(t, b, "import:42")
		require.NoError(t, q.inspector.RunTask(task.Queue, task.ID))
		store.awaitRefused(t, 2) // at once, and when it began to wait
		require.Equal(t, asynq.TaskStateActive, q.get(t, task).State)
		require.NoError(t, other.Release(t.Context()))
		require.Equal(t, 1, q.await(t, task, asynq.TaskStateCompleted).Retried)
		require.EqualValues(t, 2, runs.Load())
	})
}

// A store that fails for a moment while a task waits on its last attempt does
// not lose the task: asynq would archive it.
func TestCase01StoreFailsWhileTheLastAttemptWaits(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		other := holdAway(t, b, "import:42")
		store := &troubled{Backend: b}
		q.start(t, nothing, asynqlease.Lease(byDataset, longTTL, asynqlease.On(store)))
		task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(0))
		store.awaitRefused(t, 2) // at once, and when it began to wait
		store.acquire.Store(true)
		store.awaitFailed(t, 2)
		require.Equal(t, asynq.TaskStateActive, q.get(t, task).State)
		store.acquire.Store(false)
		require.NoError(t, other.Release(t.Context()))
		require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
	})
}

func TestCase02BusyIsNotAFailedAttempt(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		other := holdAway(t, b, "import:42")
		handler, errs := reported()
		q.work(t, asynq.Config{ErrorHandler: handler}, behind(nothing, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b))))
		task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(1))
		awaitBusy(t, errs, 3)
		back := q.await(t, task, asynq.TaskStateRetry)
		require.Zero(t, back.Retried)
		require.Contains(t, back.LastErr, `leases: acquire "import:42": busy`)

		require.NoError(t, other.Release(t.Context()))
		require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
		queue, err := q.inspector.GetQueueInfo(task.Queue)
		require.NoError(t, err)
		require.Zero(t, queue.Failed)
	})
}

// run is one run of a handler.
type run struct {
	h   *leases.Handle
	ctx context.Context // ends with the hold only, also where asynq has ended the handler's
}

func aRun(handlers context.Context) run {
	h, _ := leases.FromContext(handlers)
	ctx, cancel := h.Context(context.Background())
	context.AfterFunc(ctx, cancel)
	return run{h, ctx}
}

func requireTakenOver(t *testing.T, a, b run) {
	t.Helper()
	receive(t, a.ctx.Done(), "the end of the first run's hold")
	require.ErrorIs(t, context.Cause(a.ctx), leases.ErrLost)
	require.Greater(t, b.h.Fence(), a.h.Fence())
	require.Equal(t, b.h.Token(), a.h.Token())
	require.ErrorIs(t, a.h.Refresh(t.Context()), leases.ErrLost)
	require.ErrorIs(t, a.h.Release(t.Context()), leases.ErrLost)
	require.NoError(t, b.h.Refresh(t.Context()))

	var written resource
	require.True(t, written.write(b.h.Fence()))
	require.False(t, written.write(a.h.Fence()), "a late write")
	require.True(t, written.write(b.h.Fence()))
}

// resource refuses a write with a smaller fence than the largest it has seen.
type resource struct{ fence atomic.Int64 }

func (r *resource) write(fence int64) bool {
	for {
		seen := r.fence.Load()
		if fence < seen {
			return false
		}
		if r.fence.CompareAndSwap(seen, fence) {
			return true
		}
	}
}

// A handler that ignores its ctx overlaps its own retry.
func TestCase03RetryTakesTheLeaseOver(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, backend leases.Backend) {
		runs, ends, returned := make(chan run, 9), []chan struct{}{make(chan struct{}), make(chan struct{})}, make(chan struct{}, 9)
		var begun atomic.Int64
		q.work(t, asynq.Config{Concurrency: 1}, behind(
			func(ctx context.Context, _ *asynq.Task) error {
				end := ends[begun.Add(1)-1]
				runs <- aRun(ctx)
				<-end
				return nil
			},
			func(next asynq.Handler) asynq.Handler {
				return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					defer func() { returned <- struct{}{} }()
					return next.ProcessTask(ctx, task)
				})
			},
			asynqlease.Lease(byDataset, longTTL, asynqlease.On(backend)),
		))
		// The shortest timeout that asynq has. The retry may time out as well.
		q.add(t, args{Dataset: 42}, asynq.Timeout(time.Second), asynq.MaxRetry(1))
		a := receive(t, runs, "the first run")
		b := receive(t, runs, "the second run")
		requireTakenOver(t, a, b) // at once: the TTL is 10 minutes

		close(ends[0])
		receive(t, returned, "the end of the first run")
		require.NoError(t, b.h.Refresh(t.Context()))
		requireHeld(t, backend, "import:42")
		close(ends[1])
		receive(t, returned, "the end of the second run")
		requireFree(t, backend, "import:42")
	})
}

// The worker has lost touch with Redis, and another one gets the task. The
// first worker's own clock is behind, so that asynq does not end its ctx.
func TestCase03QueueLeaseLapsed(t *testing.T) {
	for _, process := range []string{"same", "another"} {
		t.Run(process+" process", func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			// Two backends on one store, as two processes have: nothing is known
			// of the take-over but what the store says.
			first := redislease.New(q.redis)
			second := first
			if process == "another" {
				second = redislease.New(q.redis)
			}
			const ttl = 6 * time.Second
			runs := make(chan run, 1)
			causes := make(chan error, 1)
			cut := &cutOff{}
			o := q.redis.Options()
			away := redis.NewClient(&redis.Options{Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig})
			t.Cleanup(func() { away.Close() })
			away.AddHook(cut)
			workOn(t, away, asynq.Config{ShutdownTimeout: time.Millisecond}, behind(func(ctx context.Context, _ *asynq.Task) error {
				runs <- aRun(ctx)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil
			}, asynqlease.Lease(byDataset, ttl, asynqlease.KeepAlive(), asynqlease.On(first))))
			task := q.add(t, args{Dataset: 42})
			a := receive(t, runs, "the first run")

			cut.off.Store(true)
			require.NoError(t, q.redis.ZAdd(t.Context(), "asynq:{default}:lease",
				redis.Z{Score: float64(time.Now().Add(-time.Hour).Unix()), Member: task.ID}).Err())
			end := make(chan struct{})
			q.start(t, func(ctx context.Context, _ *asynq.Task) error {
				runs <- aRun(ctx)
				<-end
				return nil
			}, asynqlease.Lease(byDataset, ttl, asynqlease.KeepAlive(), asynqlease.On(second)))
			b := receive(t, runs, "the second run")
			requireTakenOver(t, a, b)
			require.ErrorIs(t, receive(t, causes, "the end of the first handler's ctx"), leases.ErrLost)

			require.NoError(t, b.h.Refresh(t.Context()))
			close(end)
			require.Equal(t, 1, q.await(t, task, asynq.TaskStateCompleted).Retried)
			requireFree(t, second, "import:42")
		})
	}
}

// cutOff is a Redis client's hook: a network that can fail.
type cutOff struct{ off atomic.Bool }

var errNetwork = errors.New("network is unreachable")

func (c *cutOff) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cutOff) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.off.Load() {
			cmd.SetErr(errNetwork)
			return errNetwork
		}
		return next(ctx, cmd)
	}
}

func (c *cutOff) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.off.Load() {
			return errNetwork
		}
		return next(ctx, cmds)
	}
}

// The task waits in place for the inner name, on its last attempt too, and has
// given the outer one back.
func TestCase21InnerBusyGivesTheOuterBack(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		for _, retries := range []int{0, 5} {
			t.Run(fmt.Sprint(retries, " retries"), func(t *testing.T) {
				total := holdAway(t, b, "total")
				store := &troubled{Backend: b}
				names := make(chan string, 9)
				srv := q.start(t, func(ctx context.Context, _ *asynq.Task) error {
					h, _ := leases.FromContext(ctx)
					names <- h.Name()
					if isFree(t, leases.Semaphore(`tenant:"acme"`, 1, longTTL, leases.On(b))) {
						return errors.New("the task runs without a slot of the outer semaphore")
					}
					return nil
				},
					asynqlease.Semaphore(byTenant, 2, longTTL, asynqlease.On(store), asynqlease.HoldThroughRetries()),
					asynqlease.Lease(always("total"), longTTL, asynqlease.On(store), asynqlease.Wait(hang)),
				)
				task := q.add(t, args{Tenant: "acme"}, asynq.MaxRetry(retries))
				store.awaitRefused(t, 2) // at once, and when it began to wait
				require.Equal(t, asynq.TaskStateActive, q.get(t, task).State)
				require.True(t, isFree(t, leases.Semaphore(`tenant:"acme"`, 1, longTTL, leases.On(b))))

				require.NoError(t, total.Release(t.Context()))
				require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
				require.Equal(t, "total", <-names)
				require.Empty(t, names)
				srv.stop()
				requireFree(t, b, "total")
				require.True(t, isFree(t, leases.Semaphore(`tenant:"acme"`, 1, longTTL, leases.On(b))))
			})
		}
	})
}

// One at a time for each tenant and three in all, with either of them the
// outer one.
func TestCase21AllRunWithinBothLimits(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		perTenant := asynqlease.Lease(byTenant, longTTL, asynqlease.On(b))
		inAll := asynqlease.Semaphore(always("total"), 3, longTTL, asynqlease.On(b))
		var tenants, total atOnce
		var runs atomic.Int64
		do := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			defer tenants.enter(argsOf(task).Tenant)()
			defer total.enter("")()
			runs.Add(1)
			time.Sleep(2 * time.Millisecond) // the work
			return nil
		})
		mux := asynq.NewServeMux()
		mux.Handle("one", perTenant(inAll(do)))
		mux.Handle("two", inAll(perTenant(do)))
		q.work(t, asynq.Config{Concurrency: 16}, mux)
		var tasks []*asynq.TaskInfo
		for i := range 40 {
			// Half of them are on their last attempt.
			info, err := q.client.Enqueue(newTask([]string{"one", "two"}[i%2], args{Tenant: fmt.Sprint(i % 4)}),
				asynq.MaxRetry(i%3/2*5), asynq.Retention(time.Hour))
			require.NoError(t, err)
			tasks = append(tasks, info)
		}
		for _, task := range tasks {
			require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
		}
		require.EqualValues(t, 40, runs.Load())
		require.LessOrEqual(t, total.most[""], 3)
		for tenant, most := range tenants.most {
			require.Equal(t, 1, most, tenant)
		}
	})
}

func TestCase22OneAtATimeByKindArgsOrTenant(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		key asynqlease.KeyFunc
		of  func(args) string
	}{
		"kind":    {func(_ context.Context, task *asynq.Task) (string, error) { return task.Type(), nil }, func(args) string { return "" }},
		"args":    {asynqlease.ArgsKey("args"), func(a args) string { return fmt.Sprint(a) }},
		"dataset": {byDataset, func(a args) string { return fmt.Sprint(a.Dataset) }},
		"tenant":  {byTenant, func(a args) string { return a.Tenant }},
	}
	for name, by := range kinds {
		t.Run("by "+name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			var inside atOnce
			var tasks []*asynq.TaskInfo
			q.start(t, func(_ context.Context, task *asynq.Task) error {
				defer inside.enter(by.of(argsOf(task)))()
				time.Sleep(2 * time.Millisecond) // the work
				return nil
			}, asynqlease.Lease(by.key, longTTL, asynqlease.On(leases.NewInProcess()), asynqlease.MaxWaiting(8), asynqlease.Wait(hang)))
			for i := range 12 {
				tasks = append(tasks, q.add(t, args{Dataset: i % 3, Tenant: fmt.Sprint(i % 2)})) // while others run
			}
			for _, task := range tasks {
				q.await(t, task, asynq.TaskStateCompleted)
			}
			for key, most := range inside.most {
				require.Equal(t, 1, most, key)
			}
		})
	}
}
