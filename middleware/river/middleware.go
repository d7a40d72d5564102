package riverlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/taskguard"
)

// Lease runs one job of a key at a time. ttl is 1 ms to 10 years: what a
// killed worker's lease lasts, and without KeepAlive what an attempt may take.
// Arguments out of bounds make every job fail with leases.ErrInvalid.
//
// The middleware is safe for concurrent use and may stand in several places. It
// is a rivertype.Plugin, too.
func Lease(key KeyFunc, ttl time.Duration, opts ...Option) rivertype.WorkerMiddleware {
	return &middleware{key: key, guard: taskguard.Lease(ttl, opts)}
}

// Semaphore runs at most slots jobs of a key at a time, 1 to 100,000, over all
// processes. The rest is as for Lease.
func Semaphore(key KeyFunc, slots int, ttl time.Duration, opts ...Option) rivertype.WorkerMiddleware {
	return &middleware{key: key, guard: taskguard.Semaphore(slots, ttl, opts)}
}

type middleware struct {
	river.MiddlewareDefaults
	key   KeyFunc
	guard *taskguard.Guard
}

// Work implements rivertype.WorkerMiddleware.
func (m *middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	if m.key == nil {
		return fmt.Errorf("riverlease: %w: key must not be nil", leases.ErrInvalid)
	}
	key, err := m.key(job)
	if err != nil {
		return fmt.Errorf("riverlease: job %d of kind %q: %w", job.ID, job.Kind, err)
	}
	err = m.guard.Run(ctx, taskguard.Task{
		Key:       key,
		Owner:     owner(job),
		WillRetry: func(err error) bool { return willRetry(ctx, job, err) },
	}, doInner)
	var (
		busy      *taskguard.RescheduleError
		snooze    *river.JobSnoozeError
		takenOver *taskguard.TakenOverError
	)
	switch {
	case errors.As(err, &takenOver):
		return unreportedError{err}
	case errors.As(err, &busy) && !errors.As(err, &snooze): // an inner middleware's is one already
		return &busyError{busy, river.JobSnooze(busy.Delay)}
	}
	return err
}

// owner is the same for every attempt of a job. Job IDs are unique only
// within one database and schema, while several may share a store of leases.
func owner(job *rivertype.JobRow) string {
	return fmt.Sprintf("river:%d:%d", job.ID, job.CreatedAt.UnixMicro())
}

// willRetry reports whether River brings the job back after err.
func willRetry(ctx context.Context, job *rivertype.JobRow, err error) bool {
	var (
		snooze *river.JobSnoozeError
		cancel *river.JobCancelError
	)
	switch {
	case errors.As(err, &snooze):
		return true
	case errors.As(err, &cancel), errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely):
		return false
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // by StopAndCancel, which gives the attempt back
		return true
	}
	return job.Attempt < job.MaxAttempts
}

// busyError is River's snooze, and tells an outer middleware that the job has
// not run.
type busyError struct {
	busy   *taskguard.RescheduleError
	snooze error
}

func (e *busyError) Error() string   { return e.busy.Error() }
func (e *busyError) Unwrap() []error { return []error{e.snooze, e.busy} }

// unreportedError is the error of a run that River is to forget. It would set
// the job's state by it, although the job's later run has that state now: the
// job would start a third time while the second run is at it, which would end
// that one's hold, and so on until its attempts are used up.
//
// River's executor reports an error with these methods for the jobs that it
// names (withJobsAndErrorsByID, for jobs that are worked in a batch), and it
// names none. A River without that would take it as any error.
type unreportedError struct{ error }

func (e unreportedError) Unwrap() error             { return e.error }
func (unreportedError) Jobs() []*rivertype.JobRow   { return nil }
func (unreportedError) ErrorsByID() map[int64]error { return nil }
