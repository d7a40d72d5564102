package riverlease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/testbackends"
	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
	riverlease "github.com/simple-module/core/middleware/river"
)

var (
	byDataset = riverlease.ArgsKey("import", "dataset")
	byTenant  = riverlease.ArgsKey("tenant", "tenant")
)

func TestCase01And02BusyOnTheLastAttemptIsNotLost(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		other := holdAway(t, b, "import:42")
		attempts := make(chan int, 9)
		q.start(t, func(ctx context.Context, job *river.Job[task]) error {
			attempts <- job.Attempt
			return nil
		}, riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.Wait(0)))
		job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
		q.awaitSnoozes(t, job.ID, 2)
		require.Empty(t, attempts)

		require.NoError(t, other.Release(t.Context()))
		done := q.await(t, job.ID, rivertype.JobStateCompleted)
		require.Equal(t, 1, <-attempts)
		require.Empty(t, attempts)
		require.Equal(t, 1, done.Attempt)
		require.Empty(t, done.Errors)
		requireFree(t, b, "import:42")
	})
}

type run struct {
	h   *leases.Handle
	ctx context.Context
}

// runTwice has the rescuer take a job that still runs for one that was killed.
// The first run ends with its ctx, the second one with end.
func runTwice(t *testing.T, q *queue, first, second rivertype.WorkerMiddleware, end <-chan error) (job *rivertype.JobRow, a, b run, stopFirst func()) {
	t.Helper()
	runs := make(chan run, 9)
	ran := func(ctx context.Context) {
		h, _ := leases.FromContext(ctx)
		runs <- run{h, ctx}
	}
	client := q.work(t, &river.Config{
		LeaderElectionDisabled: true, // it has no rescuer
		JobTimeout:             -1,
		Queues:                 map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}, // and takes no other job
		Workers: workers(&worker{guards: []rivertype.WorkerMiddleware{first}, do: func(ctx context.Context, job *river.Job[task]) error {
			ran(ctx)
			<-ctx.Done()
			return ctx.Err()
		}}),
	})
	job = q.add(t, task{Dataset: 42}, nil)
	a = receive(t, runs, "the first run")
	q.work(t, &river.Config{
		JobTimeout:           time.Millisecond, // RescueStuckJobsAfter may not be shorter
		RescueStuckJobsAfter: time.Millisecond,
		Workers: workers(&worker{guards: []rivertype.WorkerMiddleware{second}, do: func(ctx context.Context, job *river.Job[task]) error {
			ran(ctx)
			return <-end
		}}),
	})
	return job, a, receive(t, runs, "the second run"), client.stop
}

func requireTakenOver(t *testing.T, a, b run) {
	t.Helper()
	receive(t, a.ctx.Done(), "the end of the first run's ctx")
	require.ErrorIs(t, context.Cause(a.ctx), leases.ErrLost)
	require.Greater(t, b.h.Fence(), a.h.Fence())
	require.Equal(t, b.h.Token(), a.h.Token())
	require.ErrorIs(t, a.h.Refresh(t.Context()), leases.ErrLost)
	require.ErrorIs(t, a.h.Release(t.Context()), leases.ErrLost)
	require.NoError(t, b.h.Refresh(t.Context()))
}

func TestCase03SecondRunTakesTheLeaseOver(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, backend leases.Backend) {
		end := make(chan error)
		guard := riverlease.Lease(byDataset, longTTL, riverlease.On(backend))
		job, a, b, stopFirst := runTwice(t, q, guard, guard, end)
		requireTakenOver(t, a, b) // at once: the TTL is 10 minutes

		stopFirst() // the first run has ended and been reported, and that changes nothing
		require.Equal(t, rivertype.JobStateRunning, q.get(t, job.ID).State)
		require.NoError(t, b.h.Refresh(t.Context()))
		end <- nil
		done := q.await(t, job.ID, rivertype.JobStateCompleted)
		require.Equal(t, 2, done.Attempt)
		require.Len(t, done.Errors, 1, "only the rescuer's: %v", done.Errors)
		requireFree(t, backend, "import:42")
	})
}

// Two backends on one store, as two processes have: nothing is known of the
// take-over but what the store says.
func TestCase03SecondRunInAnotherProcess(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		path := teststore.SQLitePath(t)
		guard := func() rivertype.WorkerMiddleware {
			return riverlease.Semaphore(byDataset, 1, 12*time.Second, riverlease.KeepAlive(), riverlease.On(sqlitelease.New(testbackends.SQLite(t, path))))
		}
		end := make(chan error)
		job, a, b, stopFirst := runTwice(t, q, guard(), guard(), end)
		requireTakenOver(t, a, b)

		stopFirst()
		require.Equal(t, rivertype.JobStateRunning, q.get(t, job.ID).State)
		require.NoError(t, b.h.Refresh(t.Context()))
		end <- nil
		require.Len(t, q.await(t, job.ID, rivertype.JobStateCompleted).Errors, 1)
	})
}

func TestCase21InnerBusyGivesTheOuterBack(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		total := holdAway(t, b, "total")
		names := make(chan string, 9)
		q.start(t, func(ctx context.Context, job *river.Job[task]) error {
			h, _ := leases.FromContext(ctx)
			names <- h.Name()
			for range 2 { // a slot of the user's is free, and one is taken
				ok, err := leases.Semaphore(`tenant:"acme"`, 2, longTTL, leases.On(b)).TryAcquire(ctx)
				if err != nil {
					return err
				}
				names <- fmt.Sprint(ok)
			}
			return nil
		},
			riverlease.Semaphore(byTenant, 2, longTTL, riverlease.On(b), riverlease.HoldThroughRetries()),
			riverlease.Lease(func(*rivertype.JobRow) (string, error) { return "total", nil }, longTTL, riverlease.On(b)),
		)
		job := q.add(t, task{Tenant: "acme"}, &river.InsertOpts{MaxAttempts: 1})
		q.awaitSnoozes(t, job.ID, 1)
		require.Eventually(t, func() bool { // it may be at another attempt
			h := leases.Semaphore(`tenant:"acme"`, 1, longTTL, leases.On(b))
			ok, err := h.TryAcquire(t.Context())
			require.NoError(t, err)
			return ok && h.Release(t.Context()) == nil
		}, hang, time.Millisecond)

		require.NoError(t, total.Release(t.Context()))
		done := q.await(t, job.ID, rivertype.JobStateCompleted)
		require.Equal(t, 1, done.Attempt)
		require.Equal(t, []string{"total", "true", "false"}, []string{<-names, <-names, <-names}, "the innermost handle, then the slots")
	})
}

func TestCase22OneAtATimeByKindArgsOrTenant(t *testing.T) {
	kinds := map[string]struct {
		key riverlease.KeyFunc
		of  func(task) string
	}{
		"kind":    {func(job *rivertype.JobRow) (string, error) { return job.Kind, nil }, func(task) string { return "" }},
		"args":    {riverlease.ArgsKey("args"), func(a task) string { return fmt.Sprint(a) }},
		"dataset": {byDataset, func(a task) string { return fmt.Sprint(a.Dataset) }},
		"tenant":  {byTenant, func(a task) string { return a.Tenant }},
	}
	onQueues(t, func(t *testing.T, q *queue) {
		for name, by := range kinds {
			t.Run("by "+name, func(t *testing.T) {
				var inside atOnce
				var jobs []*rivertype.JobRow
				q.start(t, func(ctx context.Context, job *river.Job[task]) error {
					defer inside.enter(by.of(job.Args))()
					time.Sleep(2 * time.Millisecond) // the work
					return nil
				}, riverlease.Lease(by.key, longTTL, riverlease.On(leases.NewInProcess()), riverlease.MaxWaiting(8), riverlease.Wait(hang)))
				for i := range 12 {
					jobs = append(jobs, q.add(t, task{Dataset: i % 3, Tenant: fmt.Sprint(i % 2)}, nil)) // while others run
				}
				for _, job := range jobs {
					q.await(t, job.ID, rivertype.JobStateCompleted)
				}
				for key, most := range inside.most {
					require.Equal(t, 1, most, key)
				}
			})
		}
	})
}
