package leases

import (
	"context"
	"math/rand/v2"
	"time"
)

// The back-off between two attempts of a line. Its bound is also what a
// wake-up that got lost can cost (R7).
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// wait is the way through a line that w has joined: to its front, and then
// attempts until the name is acquired, Wait has passed or ctx ends. busy is
// the latest answer of the store.
func (h *Handle) wait(ctx context.Context, w *waiter, busy *NotAcquiredError, until <-chan time.Time) (*hold, error) {
	defer w.leave()
	select {
	case <-w.first:
	case <-until:
		return nil, busy
	case <-ctx.Done():
		return nil, ended(ctx, busy)
	}
	l := w.line
	if l.watch() {
		// It asks again when it hears of releases, or after a moment.
		l.next = time.Now().Add(firstPause)
	}
	timer := time.NewTimer(time.Until(l.next))
	defer timer.Stop()
	for {
		select {
		case <-w.woken:
		case <-timer.C:
		case <-until:
			return nil, busy
		case <-ctx.Done():
			return nil, ended(ctx, busy)
		}
		if ctx.Err() != nil {
			return nil, ended(ctx, busy)
		}
		l.next = time.Time{} // for the next asker, should this attempt have no answer
		got, err := h.attempt(ctx, l.backend, l)
		if err == nil {
			if l.slots == 0 {
				// Nobody else can have it now: the next asker need not ask.
				l.next, l.pause = time.Now().Add(nextAttempt(lastPause, h.ttl)), firstPause
			}
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
		if l.called.Load() {
			l.pause = lastPause
		}
		d := nextAttempt(l.pause, busy.RetryAfter)
		l.next, l.pause = time.Now().Add(d), min(2*l.pause, lastPause)
		timer.Reset(d)
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
