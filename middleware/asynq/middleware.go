// Package asynqlease runs asynq tasks under leases and semaphores.
//
//	cfg := asynq.Config{Concurrency: 16}
//	asynqlease.Configure(&cfg)
//
//	once := asynqlease.Lease(asynqlease.ArgsKey("import", "dataset"), time.Minute, asynqlease.KeepAlive())
//	perHost := asynqlease.Semaphore(asynqlease.HostKey("host", "url"), 4, time.Minute, asynqlease.KeepAlive())
//
//	mux := asynq.NewServeMux()
//	mux.Handle("import", once(imports))
//	mux.Handle("download", perHost(downloads))
//	err := asynq.NewServer(redis, cfg).Run(mux)
//
// The key of a task comes from its payload, and the owner is the task: its
// queue and ID. So a retry re-acquires the lease that a killed attempt left
// behind, at once and with a larger fence, while other tasks with that key
// stay out. The handler's ctx carries the handle (leases.FromContext) and ends
// when the lease is lost; the hold is released at the end of each attempt. An
// attempt whose hold was lost before it returned has failed, with an error
// that matches leases.ErrLost.
//
// # Busy tasks
//
// A task whose key is busy waits in place for a while (Wait, MaxWaiting) and
// then goes back into the queue: to the retry set, which [Configure] keeps
// from counting it as a failure. Its delay is about the time until its turn, by
// what the tasks in front of it are likely to take; 30 s or so at most. asynq
// keeps that set's times in whole seconds and looks at it every
// DelayedTaskCheckInterval, so a task may come back up to a second sooner, or an
// interval later. Where tasks of one key take less than that second, let as many
// wait as the server has workers: MaxWaiting(cfg.Concurrency) and a Wait of some
// seconds run two hundred tasks of 20 ms in little more than their four seconds,
// without a reschedule, and the defaults in about a minute. An ErrorHandler
// sees busy tasks too: [IsBusy] tells. Without Configure all this works as
// well, but each time counts as a failed attempt with asynq's usual delay.
//
// asynq archives what comes back from its last attempt, whatever the error
// says. There a busy task waits in place until it can run, however many wait
// already, and keeps a worker busy meanwhile; an error of the store does not end
// the wait. Its timeout or deadline bounds that (asynq's default is 30
// minutes); when it passes, or when the worker is killed, asynq archives the
// task, as it does with one that was running. Give tasks a retry or more if
// their keys are often busy for long.
//
// # Several at once
//
// Middlewares stack: a task then runs when it holds all of their names. While
// an inner one is busy the outer ones are given back at once, and the task
// waits in place holding none of them; then the outermost middleware calls
// what it wraps again. leases.FromContext finds the innermost handle. Several
// on one key with the same backend are one hold: do not stack those.
//
// # What asynq does besides
//
// The time in the middleware counts towards the task's timeout. A handler that
// ignores its ctx past the timeout is abandoned by asynq and overlaps its own
// retry: the retry takes the hold over, and the older attempt's ctx has ended
// with ErrLost: at once in the same process, elsewhere at its TTL or its next
// refresh. So it is with a task that still runs when ShutdownTimeout has
// passed, or whose worker has lost touch with Redis for 30 s: asynq ends its
// ctx and puts it back. A task that waits in place then does not begin any
// more. End the process soon after Shutdown.
//
// Keep the clocks of the workers' hosts within seconds of each other: asynq
// compares them. What runs where the clock is a minute behind is started again
// elsewhere; that run ends the earlier one, whose failure asynq takes for the
// task's and retries, which ends the second, until the attempts are used up.
package asynqlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskguard"
	"github.com/simple-module/core/middleware/internal/taskkey"
)

// KeyFunc gives the key that a task is guarded by, the name of the lease or
// semaphore: "" for a task that needs none. A key that can't be a name, for
// being longer than 512 bytes among others, is hashed. With an error the task
// does not run and its attempt has failed.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// ArgsKey makes keys of prefix, a colon and the canonical JSON values of the
// named fields of the task's payload, joined by commas; with no fields named,
// of the whole payload. ArgsKey("import", "dataset") of {"dataset": 42} is
// import:42, and of {"dataset": "a"} it is import:"a". Neither the order of
// keys nor spaces, escapes or the spelling of numbers make a difference, and
// numbers are exact. A payload that is no JSON object, or lacks a field, is an
// error.
func ArgsKey(prefix string, fields ...string) KeyFunc {
	return payloadKey(taskkey.Args(prefix, fields...))
}

// HostKey makes keys of prefix, a colon and the host of the URL in a field of
// the task's JSON payload, alike however the URL spells it: without scheme,
// port, user and path, in lower case and ASCII. A missing field, or a URL
// without an http or https host, is an error.
func HostKey(prefix, urlField string) KeyFunc {
	return payloadKey(taskkey.Host(prefix, urlField))
}

func payloadKey(key func([]byte) (string, error)) KeyFunc {
	return func(_ context.Context, t *asynq.Task) (string, error) { return key(t.Payload()) }
}

// Lease runs one task of a key at a time. ttl is 1 ms to 10 years: what a
// killed worker's lease lasts, and without KeepAlive what a task may take.
// Arguments out of bounds make every task fail with leases.ErrInvalid.
func Lease(key KeyFunc, ttl time.Duration, opts ...Option) asynq.MiddlewareFunc {
	return middleware(key, taskguard.Lease(ttl, opts))
}

// Semaphore runs at most slots tasks of a key at a time, 1 to 100,000, over all
// processes. The rest is as for Lease.
func Semaphore(key KeyFunc, slots int, ttl time.Duration, opts ...Option) asynq.MiddlewareFunc {
	return middleware(key, taskguard.Semaphore(slots, ttl, opts))
}

func middleware(key KeyFunc, guard *taskguard.Guard) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if key == nil {
				return fmt.Errorf("asynqlease: %w: key must not be nil", leases.ErrInvalid)
			}
			k, err := key(ctx, t)
			if err != nil {
				return fmt.Errorf("asynqlease: task %q: %w", t.Type(), err)
			}
			task := taskOf(ctx)
			task.Key = k
			return guard.Run(ctx, task, func(ctx context.Context) error { return next.ProcessTask(ctx, t) })
		})
	}
}

// taskOf reads what asynq's processor has put into ctx. A handler that is
// called by anything else gets a random owner.
func taskOf(ctx context.Context) taskguard.Task {
	id, ok := asynq.GetTaskID(ctx)
	if !ok {
		return taskguard.Task{}
	}
	queue, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	last := retried >= most // asynq archives after that
	return taskguard.Task{
		Owner:    "asynq:" + queue + ":" + id, // an ID is unique within its queue only
		MustWait: last,
		WillRetry: func(err error) bool {
			return !last && !errors.Is(err, asynq.SkipRetry) && !errors.Is(err, asynq.RevokeTask)
		},
	}
}
