package leases

import (
	"context"
	"math/rand/v2"
	"time"
)

// The back-off between two attempts of a waiter. Its bound is also what a
// wake-up that got lost can cost (R7).
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// wait attempts again until the name is acquired, Wait has passed or ctx ends.
// busy is the answer to the first attempt.
func (h *Handle) wait(ctx context.Context, b Backend, busy *NotAcquiredError, until <-chan time.Time) (*hold, error) {
	w := joinLine(b, h.name)
	defer w.leave()
	timer := time.NewTimer(0) // a release may have come before the line was joined: ask again
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		select {
		case <-w.woken:
		case <-timer.C:
		case <-until:
			return nil, busy
		case <-ctx.Done():
			return nil, ended(ctx, busy)
		}
		got, err := h.attempt(ctx, b)
		if err == nil {
			return got, nil
		}
		refused, ok := err.(*NotAcquiredError)
		if !ok {
			if ctx.Err() != nil {
				return nil, ended(ctx, busy)
			}
			return nil, err
		}
		busy = refused
		timer.Reset(nextAttempt(pause, busy.RetryAfter))
	}
}

// nextAttempt is the jittered pause, or the holder's expiry if that is sooner.
func nextAttempt(pause, expiry time.Duration) time.Duration {
	d := pause/2 + rand.N(pause/2)
	if expiry > 0 {
		// A moment after it: the store's clock decides, not ours.
		d = min(d, expiry+time.Millisecond)
	}
	return d
}
