package riverlease_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	riverlease "github.com/simple-module/core/middleware/river"
)

func nothing(context.Context, *river.Job[task]) error { return nil }

func TestSkipCompletesWithoutRunning(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		holdAway(t, b, "import:42")
		var runs atomic.Int64
		var log bytes.Buffer
		client := q.start(t, func(context.Context, *river.Job[task]) error { runs.Add(1); return nil },
			riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.OnBusy(riverlease.Skip), riverlease.Logger(slog.New(slog.NewTextHandler(&log, nil)))))
		job := q.add(t, task{Dataset: 42}, nil)
		done := q.await(t, job.ID, rivertype.JobStateCompleted)
		client.stop()
		require.Zero(t, runs.Load())
		require.Empty(t, done.Errors)
		require.Contains(t, log.String(), "name=import:42")
	})
}

func TestFailCountsAsAnAttempt(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		holdAway(t, b, "import:42")
		var runs atomic.Int64
		q.start(t, func(context.Context, *river.Job[task]) error { runs.Add(1); return nil },
			riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.OnBusy(riverlease.Fail)))
		job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 2})
		done := q.await(t, job.ID, rivertype.JobStateDiscarded)
		require.Zero(t, runs.Load())
		require.Len(t, done.Errors, 2)
		require.Contains(t, done.Errors[1].Error, `acquire "import:42": busy`)
	})
}

func TestWaitInPlaceAndMaxWaiting(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		other := holdAway(t, b, "import:42")
		var inside atOnce
		q.start(t, func(context.Context, *river.Job[task]) error {
			defer inside.enter("")()
			return nil
		}, riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.Wait(hang), riverlease.MaxWaiting(1)))
		waits, comesBack := q.add(t, task{Dataset: 42}, nil).ID, q.add(t, task{Dataset: 42}, nil).ID
		require.Eventually(t, func() bool {
			if q.snoozes(t, waits) > 0 {
				waits, comesBack = comesBack, waits
			}
			return q.snoozes(t, comesBack) > 1
		}, hang, 5*time.Millisecond)
		require.Equal(t, rivertype.JobStateRunning, q.get(t, waits).State, "it waits in place")
		require.Zero(t, q.snoozes(t, waits))

		require.NoError(t, other.Release(t.Context()))
		q.await(t, waits, rivertype.JobStateCompleted)
		require.Zero(t, q.snoozes(t, waits))
		q.await(t, comesBack, rivertype.JobStateCompleted)
		require.Equal(t, 1, inside.most[""])
	})
}

// The time in the middleware does not count for the job's timeout.
func TestTimeoutBeginsInside(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		outside, inside := make(chan bool, 1), make(chan bool, 1)
		q.work(t, &river.Config{
			JobTimeout: time.Hour,
			Workers: workers(&worker{
				do: func(ctx context.Context, job *river.Job[task]) error {
					_, has := ctx.Deadline()
					inside <- has
					return nil
				},
				guards: []rivertype.WorkerMiddleware{
					riverlease.Lease(byDataset, longTTL, riverlease.On(leases.NewInProcess())),
					river.WorkerMiddlewareFunc(func(ctx context.Context, _ *rivertype.JobRow, doInner func(context.Context) error) error {
						_, has := ctx.Deadline()
						outside <- has
						return doInner(ctx)
					}),
				},
			}),
		})
		q.add(t, task{Dataset: 42}, nil)
		require.False(t, receive(t, outside, "the job"))
		require.True(t, receive(t, inside, "the job"))
	})
}

func TestStopAndCancelGivesAWaitingJobBack(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		other := holdAway(t, b, "import:42")
		guard := riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.Wait(hang))
		client := q.start(t, nothing, guard)
		job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
		q.await(t, job.ID, rivertype.JobStateRunning)
		client.cancel()
		back := q.get(t, job.ID)
		require.Equal(t, rivertype.JobStateAvailable, back.State)
		require.Zero(t, back.Attempt)
		require.Empty(t, back.Errors)

		require.NoError(t, other.Release(t.Context()))
		q.start(t, nothing, guard)
		q.await(t, job.ID, rivertype.JobStateCompleted)
	})
}

// River gives the attempt back, so the job comes back after its last one, too.
func TestStopAndCancelOfARunningJob(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		for _, through := range []bool{false, true} {
			b := leases.NewInProcess()
			opts := []riverlease.Option{riverlease.On(b)}
			if through {
				opts = append(opts, riverlease.HoldThroughRetries())
			}
			runs := make(chan struct{}, 2)
			client := q.start(t, func(ctx context.Context, _ *river.Job[task]) error {
				runs <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}, riverlease.Lease(byDataset, longTTL, opts...))
			job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
			receive(t, runs, "the job")
			client.cancel()
			require.Zero(t, q.get(t, job.ID).Attempt)
			if through {
				requireHeld(t, b, "import:42")
			} else {
				requireFree(t, b, "import:42")
			}
		}
	})
}
