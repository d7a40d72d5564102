package asynqlease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

func neverRetried(int, error, *asynq.Task) time.Duration { return time.Hour }

// A killed attempt leaves its lease behind, with most of its TTL.
func TestR4RetryAcquiresItsOwnLeaseAtOnce(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		store := &troubled{Backend: b}
		store.release.Store(true)
		type ran struct {
			tenant string
			fence  int64
		}
		runs := make(chan ran, 9)
		goOn := make(chan error, 9)
		handler, errs := reported()
		q.work(t, asynq.Config{ErrorHandler: handler}, behind(func(ctx context.Context, task *asynq.Task) error {
			h, _ := leases.FromContext(ctx)
			runs <- ran{argsOf(task).Tenant, h.Fence()}
			return <-goOn
		}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(store))))

		mine := q.add(t, args{Dataset: 42, Tenant: "mine"})
		first := receive(t, runs, "the first attempt")
		other := q.add(t, args{Dataset: 42, Tenant: "other"})
		awaitBusy(t, errs, 1)
		goOn <- errWork
		second := receive(t, runs, "the retry")
		require.Equal(t, "mine", second.tenant)
		require.Greater(t, second.fence, first.fence)

		store.release.Store(false)
		goOn <- nil
		goOn <- nil
		require.Equal(t, "other", receive(t, runs, "the other task").tenant)
		require.Equal(t, 1, q.await(t, mine, asynq.TaskStateCompleted).Retried)
		require.Zero(t, q.await(t, other, asynq.TaskStateCompleted).Retried)
	})
}

// The same ID may be in several queues at once.
func TestOwnerIsTheTask(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	b := leases.NewInProcess()
	owners := make(chan string, 9)
	goOn := make(chan struct{})
	q.work(t, asynq.Config{Queues: map[string]int{"default": 1, "low": 1}}, behind(func(ctx context.Context, _ *asynq.Task) error {
		h, _ := leases.FromContext(ctx)
		owners <- h.Token()
		<-goOn
		return nil
	}, asynqlease.Semaphore(byDataset, 2, longTTL, asynqlease.On(b))))
	one := q.add(t, args{Dataset: 42}, asynq.TaskID("t"), asynq.Queue("default"))
	two := q.add(t, args{Dataset: 42}, asynq.TaskID("t"), asynq.Queue("low"))
	require.ElementsMatch(t, []string{"asynq:default:t", "asynq:low:t"},
		[]string{receive(t, owners, "a task"), receive(t, owners, "the other task")}, "both hold a slot")
	close(goOn)
	q.await(t, one, asynq.TaskStateCompleted)
	q.await(t, two, asynq.TaskStateCompleted)

	long := q.add(t, args{Dataset: 42}, asynq.TaskID(strings.Repeat("x", 300)))
	q.await(t, long, asynq.TaskStateCompleted)
	require.Regexp(t, `^asynq:default:x+#sha256:[0-9a-f]{64}$`, <-owners)
}

// What asynq has not given an ID has an owner of its own in each call.
func TestOwnerOutsideOfAServer(t *testing.T) {
	t.Parallel()
	b := leases.NewInProcess()
	owners := map[string]bool{}
	guarded := asynqlease.Semaphore(byDataset, 2, longTTL, asynqlease.On(b))(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		h, _ := leases.FromContext(ctx)
		owners[h.Token()] = true
		return nil
	}))
	for range 3 {
		require.NoError(t, guarded.ProcessTask(t.Context(), newTask("task", args{Dataset: 42})))
	}
	require.Len(t, owners, 3)

	busy := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b))(asynq.HandlerFunc(nothing))
	holder := leases.Lease("import:42", longTTL, leases.On(b))
	require.NoError(t, holder.Acquire(t.Context()))
	err := busy.ProcessTask(t.Context(), newTask("task", args{Dataset: 42}))
	require.True(t, asynqlease.IsBusy(err), "%v", err)
	require.ErrorIs(t, err, leases.ErrNotAcquired)

	patient := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.Wait(hang))(asynq.HandlerFunc(nothing))
	time.AfterFunc(10*time.Millisecond, func() { holder.Release(context.Background()) })
	require.NoError(t, patient.ProcessTask(t.Context(), newTask("task", args{Dataset: 42})))
}

func TestFromContext(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		type seen struct {
			name, token string
			fence       int64
			left        time.Duration
		}
		handles := make(chan seen, 1)
		q.start(t, func(ctx context.Context, _ *asynq.Task) error {
			h, ok := leases.FromContext(ctx)
			if !ok {
				return errors.New("no handle")
			}
			handles <- seen{h.Name(), h.Token(), h.Fence(), time.Until(h.Deadline())}
			return h.Refresh(ctx)
		}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b)))
		task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(0))
		q.await(t, task, asynq.TaskStateCompleted)
		got := <-handles
		require.Equal(t, "import:42", got.name)
		require.Equal(t, "asynq:default:"+task.ID, got.token)
		require.Positive(t, got.fence)
		require.InDelta(t, longTTL, got.left, float64(hang))
	})
}

func TestEndOfAnAttempt(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		retries int
		end     asynq.HandlerFunc // nil: there is none for this kind of task
		holds   bool              // with HoldThroughRetries
		state   asynq.TaskState   // 0: the task is gone
	}{
		"done":                      {1, nothing, false, asynq.TaskStateCompleted},
		"error":                     {1, fails(errWork), true, asynq.TaskStateRetry},
		"panic":                     {1, func(context.Context, *asynq.Task) error { panic("work panicked") }, true, asynq.TaskStateRetry},
		"no handler":                {1, nil, true, asynq.TaskStateRetry},
		"no handler, last attempt":  {0, nil, false, asynq.TaskStateArchived},
		"error on the last attempt": {0, fails(errWork), false, asynq.TaskStateArchived},
		"panic on the last attempt": {0, func(context.Context, *asynq.Task) error { panic("work panicked") }, false, asynq.TaskStateArchived},
		"SkipRetry":                 {1, fails(fmt.Errorf("%w: %w", errWork, asynq.SkipRetry)), false, asynq.TaskStateArchived},
		"RevokeTask":                {1, fails(fmt.Errorf("%w: %w", errWork, asynq.RevokeTask)), false, 0},
	}
	for name, c := range cases {
		for _, through := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HoldThroughRetries %v", name, through), func(t *testing.T) {
				t.Parallel()
				q := newQueue(t)
				b := leases.NewInProcess()
				opts := []asynqlease.Option{asynqlease.On(b)}
				if through {
					opts = append(opts, asynqlease.HoldThroughRetries())
				}
				mux := asynq.NewServeMux()
				mux.Use(asynqlease.Lease(byDataset, longTTL, opts...))
				if c.end != nil {
					mux.Handle("task", c.end)
				}
				srv := q.work(t, asynq.Config{RetryDelayFunc: neverRetried}, mux)
				task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(c.retries))
				if c.state == 0 {
					require.Eventually(t, func() bool {
						_, err := q.inspector.GetTaskInfo(task.Queue, task.ID)
						return errors.Is(err, asynq.ErrTaskNotFound)
					}, hang, 5*time.Millisecond)
				} else {
					q.await(t, task, c.state)
				}
				srv.stop()
				if !through || !c.holds {
					requireFree(t, b, "import:42")
					return
				}
				requireHeld(t, b, "import:42")
				retry := leases.Lease("import:42", longTTL, leases.On(b), leases.Owner("asynq:default:"+task.ID))
				require.NoError(t, retry.Acquire(t.Context()))
			})
		}
	}
}

func fails(err error) asynq.HandlerFunc {
	return func(context.Context, *asynq.Task) error { return err }
}

// The errors that asynq knows pass unchanged, also through several.
func TestErrorsPass(t *testing.T) {
	t.Parallel()
	on := asynqlease.On(leases.NewInProcess())
	for _, want := range []error{asynq.SkipRetry, asynq.RevokeTask, errWork} {
		guarded := asynqlease.Lease(byDataset, longTTL, on)(asynqlease.Semaphore(byTenant, 1, longTTL, on)(fails(want)))
		require.Equal(t, want, guarded.ProcessTask(t.Context(), newTask("task", args{})))
	}
}

func TestGoexitReleases(t *testing.T) {
	t.Parallel()
	b := leases.NewInProcess()
	guarded := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		runtime.Goexit()
		return nil
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		guarded.ProcessTask(context.Background(), newTask("task", args{Dataset: 42}))
	}()
	receive(t, done, "the end of the goroutine")
	requireFree(t, b, "import:42")
}

func TestHoldThroughRetriesUntilTheRetryIsDone(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		ran := make(chan string, 9)
		goOn := make(chan struct{})
		handler, errs := reported()
		q.work(t, asynq.Config{ErrorHandler: handler}, behind(func(ctx context.Context, task *asynq.Task) error {
			retried, _ := asynq.GetRetryCount(ctx)
			ran <- fmt.Sprint(argsOf(task).Tenant, retried)
			if argsOf(task).Tenant == "mine" && retried < 2 {
				if retried == 0 {
					<-goOn
				}
				return errWork
			}
			return nil
		}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.HoldThroughRetries(), asynqlease.KeepAlive(), asynqlease.Wait(hang))))
		mine := q.add(t, args{Dataset: 42, Tenant: "mine"}, asynq.MaxRetry(2))
		require.Equal(t, "mine0", receive(t, ran, "the task"))
		waits := q.add(t, args{Dataset: 42, Tenant: "other"})
		more := q.add(t, args{Dataset: 42, Tenant: "other"})
		awaitBusy(t, errs, 1) // one of them waits in place
		close(goOn)
		q.await(t, mine, asynq.TaskStateCompleted)
		require.Equal(t, []string{"mine1", "mine2"}, []string{<-ran, <-ran})
		q.await(t, waits, asynq.TaskStateCompleted)
		q.await(t, more, asynq.TaskStateCompleted)
		requireFree(t, b, "import:42")
	})
}

// The time between attempts does not count: the hold has a whole TTL then.
func TestHoldThroughRetriesRefreshes(t *testing.T) {
	t.Parallel()
	b := leases.NewInProcess()
	q := newQueue(t)
	left := make(chan time.Time, 1)
	srv := q.work(t, asynq.Config{RetryDelayFunc: neverRetried}, behind(func(ctx context.Context, _ *asynq.Task) error {
		h, _ := leases.FromContext(ctx)
		if err := h.RefreshFor(ctx, hang); err != nil {
			return err
		}
		left <- h.Deadline()
		return errWork
	}, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.HoldThroughRetries())))
	q.await(t, q.add(t, args{Dataset: 42}), asynq.TaskStateRetry)
	srv.stop()
	require.Less(t, time.Until(<-left), 2*hang)
	var busy *leases.NotAcquiredError
	require.ErrorAs(t, leases.Lease("import:42", longTTL, leases.On(b), leases.NonBlocking()).Acquire(t.Context()), &busy)
	require.Greater(t, busy.RetryAfter, 2*hang)
}

// The work takes longer than the TTL.
func TestR10KeepAlive(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		q.start(t, func(ctx context.Context, _ *asynq.Task) error {
			h, _ := leases.FromContext(ctx)
			fence := h.Fence()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Until(h.Deadline()) + 100*time.Millisecond):
			}
			if h.Fence() != fence {
				return errors.New("it was acquired again")
			}
			if isFree(t, leases.Lease("import:42", longTTL, leases.On(b))) {
				return errors.New("it is free")
			}
			return h.Refresh(ctx)
		}, asynqlease.Lease(byDataset, 6*time.Second, asynqlease.On(b), asynqlease.KeepAlive()))
		q.await(t, q.add(t, args{Dataset: 42}, asynq.MaxRetry(0)), asynq.TaskStateCompleted)
	})
}

// The work goes on past its TTL: its ctx has ended, and the attempt has failed.
func TestR8LostLeaseEndsTheCtxAndFailsTheAttempt(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		q.start(t, func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), leases.ErrLost) {
				return context.Cause(ctx)
			}
			return nil
		}, asynqlease.Lease(byDataset, 2*time.Second, asynqlease.On(b)))
		done := q.await(t, q.add(t, args{Dataset: 42}, asynq.MaxRetry(0)), asynq.TaskStateArchived)
		require.Contains(t, done.LastErr, `"import:42": lost: its TTL passed`)
	})
}

// A release that failed is not the task's failure: the hold ends with its TTL.
func TestReleaseFailed(t *testing.T) {
	t.Parallel()
	b := &troubled{Backend: leases.NewInProcess()}
	b.release.Store(true)
	runs := 0
	guarded := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		runs++
		return nil
	}))
	require.NoError(t, guarded.ProcessTask(t.Context(), newTask("task", args{Dataset: 42})))
	require.Equal(t, 1, runs)
	requireHeld(t, b, "import:42")
}
