package asynqlease

import (
	"log/slog"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskguard"
)

// Busy is what becomes of a task whose key is busy.
type Busy = taskguard.Busy

const (
	// Reschedule puts the task back into the queue, to come back after the
	// holder's remaining time or a jittered second, whichever is shorter. It
	// uses up no attempt. This is the default.
	Reschedule = taskguard.Reschedule

	// Skip takes the task as done, without running it, and logs that at level
	// Info.
	Skip = taskguard.Skip

	// Fail is a failed attempt, with an error that matches
	// leases.ErrNotAcquired. On the last attempt asynq archives the task.
	Fail = taskguard.Fail
)

// Option changes a middleware from its defaults.
type Option = taskguard.Option

// OnBusy says what becomes of a task whose key is busy.
func OnBusy(b Busy) Option { return taskguard.OnBusy(b) }

// Wait makes a busy task wait in place for at most d before OnBusy, and never
// longer than half of what is left of its timeout; 0 is not at all, and less is
// leases.ErrInvalid. It keeps a worker busy meanwhile, so that a task whose turn
// is not likely to come in twice that time does not wait. The default is 1 s, or
// 0 where OnBusy is Skip or Fail; with these an inner middleware of several does
// not wait.
func Wait(d time.Duration) Option { return taskguard.Wait(d) }

// MaxWaiting is how many tasks of a key wait in place at the same time in this
// process; further ones go on to OnBusy at once. The default is the number of
// slots, 1 for a lease; 0 is none, and less is
// leases.ErrInvalid. Tasks on their last attempt are not counted.
func MaxWaiting(n int) Option { return taskguard.MaxWaiting(n) }

// KeepAlive refreshes the hold, at a third of the TTL, while the task runs.
func KeepAlive() Option { return taskguard.KeepAlive() }

// HoldThroughRetries leaves a failed task its hold, with a whole TTL from the
// end of the attempt, when asynq will retry it: other tasks with its key stay
// out meanwhile. A retry that comes later than that competes like any other:
// asynq's own delays begin with 15 s and grow to hours. After success, the last
// attempt, asynq.SkipRetry and asynq.RevokeTask the hold is released.
func HoldThroughRetries() Option { return taskguard.HoldThroughRetries() }

// On uses b instead of the process-wide backend (leases.Configure).
func On(b leases.Backend) Option { return taskguard.On(b) }

// Logger is where the middleware tells of skipped tasks, late attempts and
// errors of the store that are not the task's; nil and the default are
// slog.Default.
func Logger(l *slog.Logger) Option { return taskguard.Logger(l) }
