package asynqlease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

func TestSkipIsDoneWithoutRunning(t *testing.T) {
	t.Parallel()
	q, b := newQueue(t), leases.NewInProcess()
	holdAway(t, b, "import:42")
	var runs atomic.Int64
	var log bytes.Buffer
	srv := q.start(t, func(context.Context, *asynq.Task) error { runs.Add(1); return nil },
		asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.OnBusy(asynqlease.Skip), asynqlease.Logger(slog.New(slog.NewTextHandler(&log, nil)))))
	for _, retries := range []int{0, 5} {
		done := q.await(t, q.add(t, args{Dataset: 42}, asynq.MaxRetry(retries)), asynq.TaskStateCompleted)
		require.Empty(t, done.LastErr)
	}
	srv.stop()
	require.Zero(t, runs.Load())
	require.Contains(t, log.String(), "level=INFO")
	require.Contains(t, log.String(), "name=import:42")
}

func TestFailCountsAsAnAttempt(t *testing.T) {
	t.Parallel()
	q, b := newQueue(t), leases.NewInProcess()
	holdAway(t, b, "import:42")
	handler, errs := reported()
	var runs atomic.Int64
	q.work(t, asynq.Config{ErrorHandler: handler}, behind(func(context.Context, *asynq.Task) error { runs.Add(1); return nil },
		asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.OnBusy(asynqlease.Fail))))
	done := q.await(t, q.add(t, args{Dataset: 42}, asynq.MaxRetry(1)), asynq.TaskStateArchived)
	require.Equal(t, 1, done.Retried)
	require.Zero(t, runs.Load())
	require.Len(t, errs, 2)
	for range 2 {
		err := <-errs
		require.ErrorIs(t, err, leases.ErrNotAcquired)
		require.False(t, asynqlease.IsBusy(err), "it is a failure")
	}
}

func TestWaitInPlaceAndMaxWaiting(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		other := holdAway(t, b, "import:42")
		handler, errs := reported()
		// Two middlewares of one key have one waiting room.
		guards := make([]asynq.MiddlewareFunc, 2)
		for i := range guards {
			guards[i] = asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.Wait(hang), asynqlease.MaxWaiting(2))
		}
		var inside atOnce
		do := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { defer inside.enter("")(); return nil })
		var begun atomic.Int64
		q.work(t, asynq.Config{ErrorHandler: handler}, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return guards[begun.Add(1)%2](do).ProcessTask(ctx, task)
		}))
		var tasks []*asynq.TaskInfo
		for range 5 {
			tasks = append(tasks, q.add(t, args{Dataset: 42}))
		}
		awaitBusy(t, errs, 6)
		var waiting []*asynq.TaskInfo // in place: they have never come back
		require.Eventually(t, func() bool {
			waiting = nil
			for _, task := range tasks {
				if info := q.get(t, task); info.LastErr == "" {
					waiting = append(waiting, info)
				}
			}
			return len(waiting) <= 2
		}, hang, 5*time.Millisecond)
		require.Len(t, waiting, 2)
		for _, task := range waiting {
			require.Equal(t, asynq.TaskStateActive, task.State)
		}

		require.NoError(t, other.Release(t.Context()))
		for _, task := range tasks {
			require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
		}
		require.Equal(t, 1, inside.most[""])
	})
}

// A wait that lasted until the task's timeout would be a failed attempt.
func TestCase02WaitEndsBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	q, b := newQueue(t), leases.NewInProcess()
	holdAway(t, b, "import:42")
	handler, errs := reported()
	q.work(t, asynq.Config{ErrorHandler: handler}, behind(nothing, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.Wait(hang))))
	task := q.add(t, args{Dataset: 42}, asynq.Timeout(2*time.Second), asynq.MaxRetry(1))
	awaitBusy(t, errs, 2)
	require.Zero(t, q.get(t, task).Retried)
}

// What is documented, not what is hoped for: asynq archives a task without
// retries when its timeout passes, whatever it does at that moment.
func TestLastAttemptWaitsUntilItsTimeout(t *testing.T) {
	t.Parallel()
	q, b := newQueue(t), leases.NewInProcess()
	holdAway(t, b, "import:42")
	var runs atomic.Int64
	q.start(t, func(context.Context, *asynq.Task) error { runs.Add(1); return nil }, asynqlease.Lease(byDataset, longTTL, asynqlease.On(b)))
	task := q.add(t, args{Dataset: 42}, asynq.Timeout(time.Second), asynq.MaxRetry(0))
	require.Contains(t, q.await(t, task, asynq.TaskStateArchived).LastErr, context.DeadlineExceeded.Error())
	require.Zero(t, runs.Load())
}

// ShutdownTimeout passes while a task waits in place: asynq puts it back, and
// it does not begin there any more.
func TestShutdownPutsAWaitingTaskBack(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		for _, retries := range []int{0, 1} {
			other := holdAway(t, b, "import:42")
			store := &troubled{Backend: b}
			ended := make(chan error, 1)
			guard := asynqlease.Lease(byDataset, longTTL, asynqlease.On(store), asynqlease.Wait(hang))
			srv := q.work(t, asynq.Config{ShutdownTimeout: 50 * time.Millisecond}, behind(
				func(context.Context, *asynq.Task) error { panic("it runs") },
				func(next asynq.Handler) asynq.Handler {
					return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
						err := next.ProcessTask(ctx, task)
						ended <- err
						return err
					})
				}, guard))
			task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(retries))
			store.awaitRefused(t, 2) // at once, and when it began to wait
			srv.stop()
			require.ErrorIs(t, receive(t, ended, "the end of the wait"), context.Canceled)
			back := q.get(t, task)
			require.Equal(t, asynq.TaskStatePending, back.State)
			require.Zero(t, back.Retried)

			require.NoError(t, other.Release(t.Context()))
			next := q.start(t, nothing, guard)
			q.await(t, task, asynq.TaskStateCompleted)
			next.stop()
		}
	})
}

// OnBusy of an inner middleware: the outer name is given back, with
// HoldThroughRetries as well, since the task has not begun.
func TestCase21InnerSkipsOrFails(t *testing.T) {
	t.Parallel()
	for _, busy := range []asynqlease.Busy{asynqlease.Skip, asynqlease.Fail} {
		q, b := newQueue(t), leases.NewInProcess()
		holdAway(t, b, "total")
		srv := q.work(t, asynq.Config{RetryDelayFunc: neverRetried}, behind(func(context.Context, *asynq.Task) error { return errors.New("it runs") },
			asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.HoldThroughRetries()),
			asynqlease.Lease(always("total"), longTTL, asynqlease.On(b), asynqlease.OnBusy(busy)),
		))
		task := q.add(t, args{Dataset: 42})
		if busy == asynqlease.Skip {
			q.await(t, task, asynq.TaskStateCompleted)
		} else {
			require.Contains(t, q.await(t, task, asynq.TaskStateRetry).LastErr, `acquire "total": busy`)
		}
		srv.stop()
		requireFree(t, b, "import:42")
	}
}
