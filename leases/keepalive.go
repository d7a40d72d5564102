package leases

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// startKeepAlive refreshes the hold until it ends, is released or detached.
// The goroutine keeps ctx's values, not its end: a hold may outlive the call
// that acquired it.
func (h *hold) startKeepAlive(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.alive() {
		stop()
		return
	}
	h.stopKeep = stop
	go h.keepAlive(ctx)
}

func (h *hold) keepAlive(ctx context.Context) {
	timer := time.NewTimer(h.untilRefresh())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.moved:
			timer.Reset(h.untilRefresh())
			continue
		case <-ctx.Done():
			return
		}
		// Bounded, so that a reply that never comes leaves time to try again.
		attempt, cancel := context.WithTimeout(ctx, max(h.ttl/3, time.Millisecond))
		err := h.refresh(attempt, h.ttl)
		cancel()
		switch {
		case err == nil: // it has moved
		case errors.Is(err, ErrLost) || ctx.Err() != nil:
			return
		default:
			slog.WarnContext(ctx, "lease refresh failed; trying again until the deadline",
				"name", h.Name, "fence", h.Fence, "error", err)
			timer.Reset(retryPause(h.ttl))
		}
	}
}

// untilRefresh is the time until a third of the TTL has passed. After a
// RefreshFor the hold is refreshed when as much is left as KeepAlive leaves
// otherwise, or two thirds of the shorter TTL.
func (h *hold) untilRefresh() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := min(h.ttl, h.span) / 3 * 2
	return max(time.Until(h.deadline.Add(-left)), time.Millisecond)
}

func retryPause(ttl time.Duration) time.Duration {
	most := min(max(ttl/10, 2*time.Millisecond), time.Second)
	return most/2 + rand.N(most/2)
}
