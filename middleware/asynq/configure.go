package asynqlease

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/simple-module/core/middleware/internal/taskguard"
)

// CheckInterval is what Configure sets DelayedTaskCheckInterval to when it is
// 0. asynq's default of 5 s would leave a busy task in the queue for as long;
// one look costs Redis two short script calls for each queue, so the eight a
// second of one queue are next to nothing.
const CheckInterval = 250 * time.Millisecond

// Configure makes asynq treat a busy task as rescheduled: it does not count as
// a failed attempt (IsFailure), and comes back after the delay that its error
// says (RetryDelayFunc). What cfg has there already, or asynq's default, stays
// in force for all other errors. DelayedTaskCheckInterval is set to
// CheckInterval if it is 0; the rest of cfg stays as it is. Call it before
// asynq.NewServer. A second call changes nothing more, and nil is ignored.
func Configure(cfg *asynq.Config) {
	if cfg == nil {
		return
	}
	isFailure, retryDelay := cfg.IsFailure, cfg.RetryDelayFunc
	if isFailure == nil {
		isFailure = func(err error) bool { return err != nil }
	}
	if retryDelay == nil {
		retryDelay = asynq.DefaultRetryDelayFunc
	}
	cfg.IsFailure = func(err error) bool { return !IsBusy(err) && isFailure(err) }
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		var r *taskguard.RescheduleError
		if errors.As(err, &r) {
			return r.Delay
		}
		return retryDelay(n, err, t)
	}
	if cfg.DelayedTaskCheckInterval == 0 {
		cfg.DelayedTaskCheckInterval = CheckInterval
	}
}

// IsBusy reports whether err is that of a task that has not run, because its
// key is busy, and was put back into the queue: asynq shows it to the
// ErrorHandler like a failure. The error of OnBusy(Fail) is a failure.
func IsBusy(err error) bool {
	var r *taskguard.RescheduleError
	return errors.As(err, &r)
}
