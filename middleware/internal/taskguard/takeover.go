package taskguard

import (
	"context"
	"time"

	"github.com/simple-module/core/leases"
)

// TakenOverError is the error of an attempt that has lost its hold to a later
// attempt of the same task, which has it still. What the queue does about the
// task now would befall that later attempt.
type TakenOverError struct{ Err error }

func (e *TakenOverError) Error() string {
	return e.Err.Error() + "; a later attempt of the task has taken it over"
}

func (e *TakenOverError) Unwrap() error { return e.Err }

// takenOver reports whether another attempt has what h has lost.
func (g *Guard) takenOver(ctx context.Context, h *leases.Handle) bool {
	select {
	case <-h.Lost():
	default:
		return false
	}
	b := g.backend()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	hold := leases.Hold{Name: h.Name(), Slots: g.slots, Owner: h.Token(), Fence: h.Fence()}
	// Past its own deadline h's hold may still be in the store.
	if _, err := b.Release(ctx, hold); err != nil {
		return false
	}
	hold.Fence = 0
	ok, err := b.Refresh(ctx, hold, g.ttl)
	return ok && err == nil
}

const storeTime = 5 * time.Second // for what is left to do at an attempt's end
