package riverlease

import (
	"log/slog"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskguard"
)

// Busy is what becomes of a job whose key is busy.
type Busy = taskguard.Busy

const (
	// Reschedule snoozes the job, to come back after the holder's remaining
	// time or a jittered second, whichever is shorter. It uses up no attempt
	// and is no error, also on the last attempt. This is the default.
	Reschedule = taskguard.Reschedule

	// Skip completes the job without running it, and logs that.
	Skip = taskguard.Skip

	// Fail is a failed attempt, with an error that matches
	// leases.ErrNotAcquired. On the last attempt River discards the job.
	Fail = taskguard.Fail
)

// Option changes a middleware from its defaults.
type Option = taskguard.Option

// OnBusy says what becomes of a job whose key is busy.
func OnBusy(b Busy) Option { return taskguard.OnBusy(b) }

// Wait makes a busy job wait in place for at most d before OnBusy; 0 is not at
// all, and less is leases.ErrInvalid. It keeps a worker busy meanwhile, so that
// a job whose turn is not likely to come in twice that time does not wait. The
// job's timeout has not begun; keep Wait well below River's RescueStuckJobsAfter.
// The default is 1 s, or 0 where OnBusy is Skip or Fail; with these an inner
// middleware of several does not wait.
func Wait(d time.Duration) Option { return taskguard.Wait(d) }

// MaxWaiting is how many jobs of a key wait in place at the same time in this
// process; further ones go on to OnBusy at once. The default is the number of
// slots, 1 for a lease; 0 is none, and less is leases.ErrInvalid.
func MaxWaiting(n int) Option { return taskguard.MaxWaiting(n) }

// KeepAlive refreshes the hold, at a third of the TTL, while the job runs.
func KeepAlive() Option { return taskguard.KeepAlive() }

// HoldThroughRetries leaves a job its hold, with a whole TTL from the end of
// the attempt, when River will bring it back: after an error or panic that was
// not on the last attempt, after a snooze of its own, and after StopAndCancel.
// Other jobs with its key stay out meanwhile. A retry that comes later than
// the TTL competes like any other.
func HoldThroughRetries() Option { return taskguard.HoldThroughRetries() }

// On uses b instead of the process-wide backend.
func On(b leases.Backend) Option { return taskguard.On(b) }

// Logger is where the middleware tells of skipped jobs, late attempts and
// errors of the store that are not the job's; nil and the default are
// slog.Default.
func Logger(l *slog.Logger) Option { return taskguard.Logger(l) }
