package riverlease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	riverlease "github.com/simple-module/core/middleware/river"
)

var errWork = errors.New("work failed")

func ownerOf(job *rivertype.JobRow) string {
	return fmt.Sprintf("river:%d:%d", job.ID, job.CreatedAt.UnixMicro())
}

// A killed attempt leaves its lease behind, with most of its TTL.
func TestR4RetryAcquiresItsOwnLeaseAtOnce(t *testing.T) {
	onBackends(t, func(t *testing.T, q *queue, b leases.Backend) {
		store := &troubled{Backend: b}
		store.release.Store(true)
		type ran struct {
			dataset string
			fence   int64
		}
		runs := make(chan ran, 9)
		goOn := make(chan struct{}, 9)
		q.start(t, func(ctx context.Context, job *river.Job[task]) error {
			h, _ := leases.FromContext(ctx)
			runs <- ran{job.Args.Tenant, h.Fence()}
			<-goOn
			if job.Args.Tenant == "mine" && job.Attempt == 1 {
				return errWork
			}
			return nil
		}, riverlease.Lease(byDataset, longTTL, riverlease.On(store), riverlease.Wait(0)))

		mine := q.add(t, task{Dataset: 42, Tenant: "mine"}, nil)
		first := receive(t, runs, "the first attempt")
		other := q.add(t, task{Dataset: 42, Tenant: "other"}, nil)
		q.awaitSnoozes(t, other.ID, 1)
		goOn <- struct{}{}
		second := receive(t, runs, "the retry")
		require.Equal(t, "mine", second.dataset)
		require.Greater(t, second.fence, first.fence)
		require.Equal(t, rivertype.JobStateRunning, q.get(t, mine.ID).State)

		store.release.Store(false)
		goOn <- struct{}{}
		goOn <- struct{}{}
		require.Equal(t, "other", receive(t, runs, "the other job").dataset)
		q.await(t, mine.ID, rivertype.JobStateCompleted)
		q.await(t, other.ID, rivertype.JobStateCompleted)
	})
}

// The owner is the same in every attempt, and on both databases made of what
// the row has for good.
func TestOwnerIsTheJob(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		owners := make(chan string, 9)
		q.start(t, func(ctx context.Context, job *river.Job[task]) error {
			h, _ := leases.FromContext(ctx)
			owners <- h.Token()
			switch len(owners) {
			case 1:
				return errWork
			case 2:
				return river.JobSnooze(0)
			case 3:
				panic("work panicked")
			}
			return nil
		}, riverlease.Lease(byDataset, longTTL, riverlease.On(leases.NewInProcess())))
		added := q.add(t, task{Dataset: 42}, nil)
		done := q.await(t, added.ID, rivertype.JobStateCompleted)
		require.Len(t, owners, 4)
		for range 4 {
			require.Equal(t, ownerOf(done), <-owners)
		}
		require.Equal(t, ownerOf(added), ownerOf(done))
	})
}

func TestEndOfAnAttempt(t *testing.T) {
	cases := map[string]struct {
		most  int // attempts
		end   func() error
		holds bool // with HoldThroughRetries
		state rivertype.JobState
	}{
		"done":                       {2, func() error { return nil }, false, rivertype.JobStateCompleted},
		"error":                      {2, func() error { return errWork }, true, rivertype.JobStateRetryable},
		"panic":                      {2, func() error { panic("work panicked") }, true, rivertype.JobStateRetryable},
		"error on the last attempt":  {1, func() error { return errWork }, false, rivertype.JobStateDiscarded},
		"panic on the last attempt":  {1, func() error { panic("work panicked") }, false, rivertype.JobStateDiscarded},
		"cancel":                     {2, func() error { return river.JobCancel(errWork) }, false, rivertype.JobStateCancelled},
		"snooze":                     {2, func() error { return river.JobSnooze(time.Hour) }, true, rivertype.JobStateScheduled},
		"snooze on the last attempt": {1, func() error { return fmt.Errorf("later: %w", river.JobSnooze(time.Hour)) }, true, rivertype.JobStateScheduled},
	}
	onQueues(t, func(t *testing.T, q *queue) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				for _, through := range []bool{false, true} {
					b := leases.NewInProcess()
					opts := []riverlease.Option{riverlease.On(b)}
					if through {
						opts = append(opts, riverlease.HoldThroughRetries())
					}
					client := q.work(t, &river.Config{Workers: workers(&worker{
						retry:  time.Hour,
						guards: []rivertype.WorkerMiddleware{riverlease.Lease(byDataset, longTTL, opts...)},
						do:     func(context.Context, *river.Job[task]) error { return c.end() },
					})})
					job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: c.most})
					q.await(t, job.ID, c.state)
					client.stop()
					if !through || !c.holds {
						requireFree(t, b, "import:42")
						continue
					}
					requireHeld(t, b, "import:42")
					retry := leases.Lease("import:42", longTTL, leases.On(b), leases.Owner(ownerOf(job)))
					require.NoError(t, retry.Acquire(t.Context()))
				}
			})
		}
	})
}

func TestHoldThroughRetriesUntilTheRetryIsDone(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		ran := make(chan string, 9)
		goOn := make(chan struct{})
		q.start(t, func(ctx context.Context, job *river.Job[task]) error {
			ran <- fmt.Sprint(job.Args.Tenant, job.Attempt)
			if job.Args.Tenant == "mine" && job.Attempt < 3 {
				if job.Attempt == 1 {
					<-goOn
				}
				return errWork
			}
			return nil
		}, riverlease.Lease(byDataset, longTTL, riverlease.On(b), riverlease.HoldThroughRetries(), riverlease.KeepAlive(), riverlease.Wait(hang)))
		q.add(t, task{Dataset: 42, Tenant: "mine"}, nil)
		require.Equal(t, "mine1", receive(t, ran, "the job"))
		other := q.add(t, task{Dataset: 42, Tenant: "other"}, nil)
		q.await(t, other.ID, rivertype.JobStateRunning) // it waits in place
		close(goOn)
		q.await(t, other.ID, rivertype.JobStateCompleted)
		require.Equal(t, []string{"mine2", "mine3", "other1"}, []string{<-ran, <-ran, <-ran})
		requireFree(t, b, "import:42")
	})
}

func TestR10KeepAlive(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		b := leases.NewInProcess()
		q.start(t, func(ctx context.Context, _ *river.Job[task]) error {
			h, _ := leases.FromContext(ctx)
			for first := h.Deadline(); !h.Deadline().After(first); {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(5 * time.Millisecond):
				}
			}
			return nil
		}, riverlease.Lease(byDataset, 3*time.Second, riverlease.On(b), riverlease.KeepAlive()))
		job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
		q.await(t, job.ID, rivertype.JobStateCompleted)
	})
}

// The work goes on past its TTL: its ctx has ended, and the attempt has failed.
func TestR8LostLeaseEndsTheCtxAndFailsTheAttempt(t *testing.T) {
	onQueues(t, func(t *testing.T, q *queue) {
		q.start(t, func(ctx context.Context, _ *river.Job[task]) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), leases.ErrLost) {
				return context.Cause(ctx)
			}
			return nil
		}, riverlease.Lease(byDataset, 200*time.Millisecond, riverlease.On(leases.NewInProcess())))
		job := q.add(t, task{Dataset: 42}, &river.InsertOpts{MaxAttempts: 1})
		done := q.await(t, job.ID, rivertype.JobStateDiscarded)
		require.Contains(t, done.Errors[0].Error, `"import:42": lost: its TTL passed`)
	})
}
