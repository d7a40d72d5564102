package taskguard

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/simple-module/core/leases"
)

// Busy is what becomes of a task whose name is busy, after it has waited.
type Busy int

const (
	// Reschedule puts the task back into the queue: the default.
	Reschedule Busy = iota
	// Skip takes the task as done, without running it.
	Skip
	// Fail is a failed attempt.
	Fail
)

// DefaultWait is how long a task waits in place before it is rescheduled, which
// takes the queues about as long. To be skipped or to fail it does not wait by
// default.
const DefaultWait = time.Second

// Option changes a Guard from its defaults.
type Option func(*config)

type config struct {
	busy               Busy
	wait               time.Duration
	maxWaiting         int
	holdThroughRetries bool
	log                *slog.Logger
	backend            leases.Backend // nil: the process-wide one
	handle             []leases.Option
	err                error // of an option
}

func newConfig(slots int, opts []Option) config {
	c := config{wait: -1, maxWaiting: slots}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if c.wait < 0 {
		c.wait = 0
		if c.busy == Reschedule {
			c.wait = DefaultWait
		}
	}
	return c
}

func (c *config) logger() *slog.Logger {
	if c.log == nil {
		return slog.Default()
	}
	return c.log
}

func (c *config) invalid(argument, bounds string, got any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s must be %s, got %v", leases.ErrInvalid, argument, bounds, got)
	}
}

// OnBusy says what becomes of a task whose name is busy.
func OnBusy(b Busy) Option {
	return func(c *config) {
		if b < Reschedule || b > Fail {
			c.invalid("OnBusy", "Reschedule, Skip or Fail", int(b))
		}
		c.busy = b
	}
}

// Wait is how long a task waits in place, at most half of the time until its
// deadline; 0: not at all. One whose turn is not likely to come in twice that
// time does not wait. Inside another guard a task that is to be skipped or
// to fail does not wait.
func Wait(d time.Duration) Option {
	return func(c *config) {
		if d < 0 {
			c.invalid("Wait", "0 or more", d)
		}
		c.wait = max(d, 0)
	}
}

// MaxWaiting is how many tasks of a key wait in place in this process; 0: none.
func MaxWaiting(n int) Option {
	return func(c *config) {
		if n < 0 {
			c.invalid("MaxWaiting", "0 or more", n)
		}
		c.maxWaiting = n
	}
}

// KeepAlive refreshes the hold while the task runs.
func KeepAlive() Option {
	return func(c *config) { c.handle = append(c.handle, leases.KeepAlive()) }
}

// HoldThroughRetries leaves a failed task its hold when it will be retried.
func HoldThroughRetries() Option {
	return func(c *config) { c.holdThroughRetries = true }
}

// On uses b instead of the process-wide backend.
func On(b leases.Backend) Option {
	return func(c *config) { c.backend, c.handle = b, append(c.handle, leases.On(b)) }
}

// Logger is where skipped tasks, late attempts and errors of the store that are
// not the task's are told; nil and the default are slog.Default.
func Logger(l *slog.Logger) Option {
	return func(c *config) { c.log = l }
}
