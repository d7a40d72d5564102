package leases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNotAcquired says that the name is busy: other owners hold it. The
	// error that carries it is a *NotAcquiredError.
	ErrNotAcquired = errors.New("leases: not acquired")

	// ErrLost says that the hold ended without Release: its TTL passed, the
	// same owner acquired the name again, or the store no longer has it.
	ErrLost = errors.New("leases: lost")

	// ErrInvalid says that an argument is out of its bounds. Nothing was sent
	// to the store.
	ErrInvalid = errors.New("leases: invalid argument")

	// ErrKind says that the name is in use as the other kind: a lease where a
	// semaphore was asked for, or the other way round.
	ErrKind = errors.New("leases: wrong kind")
)

// NotAcquiredError is returned when a name is busy. It matches ErrNotAcquired
// under errors.Is.
type NotAcquiredError struct {
	// Name is the name that is busy.
	Name string
	// RetryAfter is how long the holder that expires first still has, counted
	// from the answer. It may release earlier. 0 means unknown.
	RetryAfter time.Duration
}

// Error implements error.
func (e NotAcquiredError) Error() string {
	if e.RetryAfter <= 0 {
		return fmt.Sprintf("leases: acquire %q: busy", e.Name)
	}
	return fmt.Sprintf("leases: acquire %q: busy for at most %v", e.Name, e.RetryAfter)
}

// Is makes errors.Is(err, ErrNotAcquired) true.
func (e NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// As lets errors.As find the error as a value as well as a pointer.
func (e *NotAcquiredError) As(target any) bool {
	v, ok := target.(*NotAcquiredError)
	if ok {
		*v = *e
	}
	return ok
}

// failure has a text of its own around the error it matches, so that
// "leases:" does not stand in it twice.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

func invalid(argument, bounds string, got any) error {
	return &failure{fmt.Sprintf("leases: invalid argument: %s must be %s, got %v", argument, bounds, got), ErrInvalid}
}

func lost(op, name, reason string) error {
	return &failure{fmt.Sprintf("leases: %s %q: lost: %s", op, name, reason), ErrLost}
}

// failed wraps a backend's error with what was tried.
func failed(op, name string, err error) error {
	return &failure{fmt.Sprintf("leases: %s %q: %s", op, name, strings.TrimPrefix(err.Error(), "leases: ")), err}
}

// ended is the error of a wait that ctx ended: both ErrNotAcquired and ctx's.
func ended(ctx context.Context, busy *NotAcquiredError) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w (%w)", busy, cause)
	}
	return fmt.Errorf("%w (%w: %w)", busy, err, cause)
}
