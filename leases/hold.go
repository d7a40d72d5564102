package leases

import (
	"context"
	"sync"
	"time"
)

// hold is one granted acquisition as this process knows it. It ends once, by
// release or by loss, and is never live again.
type hold struct {
	Hold
	backend Backend
	ttl     time.Duration // what KeepAlive restores

	// turn is taken for a Refresh or Release, so that the store applies them
	// in the order in which this process takes in their answers.
	turn chan struct{}

	mu        sync.Mutex
	state     state
	reason    string        // why the hold is gone
	deadline  time.Time     // with a monotonic reading (R8)
	span      time.Duration // the TTL behind deadline
	moved     chan struct{} // capacity 1: tells KeepAlive that deadline has moved
	guard     *time.Timer   // fires at deadline
	uncertain bool          // a Release failed, but may have been applied
	detached  bool          // Do leaves it to its TTL
	lost      chan struct{} // made when first asked for; closed when gone
	bound     map[*binding]struct{}
	stopKeep  context.CancelFunc // ends KeepAlive's goroutine; nil without one
	forget    func()             // takes the hold out of holdsByOwner; nil when not in it
}

type state int

const (
	live      state = iota
	releasing       // live, but given up: no longer kept alive
	released
	gone // lost
)

// binding is a context that ends when the hold is lost.
type binding struct{ cancel context.CancelCauseFunc }

const (
	reasonExpired   = "its TTL passed without a refresh"
	reasonTakenOver = "the same owner has acquired it again"
	reasonRefused   = "the store has no such hold any more: it expired, was acquired again or was removed"
	reasonNotHeld   = "it is not held"
)

// newHold watches over a hold that was granted to a request sent at start.
func newHold(b Backend, h Hold, start time.Time, ttl time.Duration) *hold {
	n := &hold{Hold: h, backend: b, ttl: ttl, turn: make(chan struct{}, 1), moved: make(chan struct{}, 1), deadline: start.Add(ttl), span: ttl}
	n.mu.Lock() // guard may fire before it is assigned
	n.guard = time.AfterFunc(time.Until(n.deadline), n.guardFired)
	n.mu.Unlock()
	return n
}

func (h *hold) guardFired() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive() {
		h.guard.Reset(time.Until(h.deadline))
	}
}

// alive reports whether the hold is live; past its deadline it ends it. The
// caller holds mu.
func (h *hold) alive() bool {
	if h.state >= released {
		return false
	}
	if time.Now().Before(h.deadline) {
		return true
	}
	h.end(gone, reasonExpired)
	return false
}

// end is the only way out of live. The caller holds mu.
func (h *hold) end(s state, reason string) {
	h.state, h.reason = s, reason
	h.guard.Stop()
	if h.stopKeep != nil {
		h.stopKeep()
	}
	if h.forget != nil {
		h.forget()
	}
	if s == gone {
		if h.lost != nil {
			close(h.lost)
		}
		for b := range h.bound {
			b.cancel(h.whyEnded("hold"))
		}
	}
	h.bound = nil
}

// lose ends the hold as lost if it has not ended yet.
func (h *hold) lose(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive() {
		h.end(gone, reason)
	}
}

func (h *hold) whyEnded(op string) error {
	if h.state == released {
		return lost(op, h.Name, reasonNotHeld)
	}
	return lost(op, h.Name, h.reason)
}

// check returns nil while the hold is live.
func (h *hold) check(op string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive() {
		return nil
	}
	return h.whyEnded(op)
}

// begin waits for the turn of one Refresh or Release.
func (h *hold) begin(ctx context.Context, op string) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return failed(op, h.Name, ctx.Err())
	}
	if err := h.check(op); err != nil {
		<-h.turn
		return err
	}
	return nil
}

func (h *hold) refresh(ctx context.Context, ttl time.Duration) error {
	if err := h.check("refresh"); err != nil {
		return err
	}
	if err := h.begin(ctx, "refresh"); err != nil {
		return err
	}
	defer func() { <-h.turn }()
	start := time.Now()
	ok, err := h.backend.Refresh(ctx, h.Hold, ttl)

	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		// It may have been applied: believe the shorter of the two.
		if h.alive() && start.Add(ttl).Before(h.deadline) {
			h.setDeadline(start, ttl)
		}
		return failed("refresh", h.Name, err)
	case !ok:
		if h.alive() {
			h.end(gone, reasonRefused)
		}
		return h.whyEnded("refresh")
	}
	// A hold that ended here while the store was extending it must not stay
	// there for another TTL.
	if h.alive() {
		h.setDeadline(start, ttl)
	}
	if !h.alive() {
		releaseInBackground(ctx, h.backend, h.Hold)
		return h.whyEnded("refresh")
	}
	return nil
}

func (h *hold) setDeadline(start time.Time, ttl time.Duration) {
	h.deadline, h.span = start.Add(ttl), ttl
	h.guard.Reset(time.Until(h.deadline))
	select {
	case h.moved <- struct{}{}:
	default:
	}
}

func (h *hold) release(ctx context.Context) error {
	h.mu.Lock()
	if !h.alive() {
		defer h.mu.Unlock()
		return h.whyEnded("release")
	}
	h.state = releasing
	if h.stopKeep != nil {
		h.stopKeep()
	}
	h.mu.Unlock()

	if err := h.begin(ctx, "release"); err != nil {
		return err
	}
	defer func() { <-h.turn }()
	ok, err := h.backend.Release(ctx, h.Hold)

	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.uncertain = true
		return failed("release", h.Name, err)
	}
	if ok || h.uncertain {
		if h.alive() {
			h.end(released, "")
		}
		wakeLines(h.backend, h.Name)
		return nil
	}
	if h.alive() {
		h.end(gone, reasonRefused)
	}
	return h.whyEnded("release")
}

func (h *hold) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.detached = true
	if h.stopKeep != nil {
		h.stopKeep()
	}
}

// bind returns a child of parent that ends, with a cause that is ErrLost, when
// the hold is lost.
func (h *hold) bind(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	b := &binding{cancel}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.alive() {
		cancel(h.whyEnded("hold"))
		return ctx, func() {}
	}
	if h.bound == nil {
		h.bound = make(map[*binding]struct{})
	}
	h.bound[b] = struct{}{}
	return ctx, func() {
		h.mu.Lock()
		delete(h.bound, b)
		h.mu.Unlock()
		cancel(nil)
	}
}

func (h *hold) deadlineIfLive() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.alive() {
		return time.Time{}
	}
	return h.deadline
}

func (h *hold) lostChan() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.state == gone {
			close(h.lost)
		}
	}
	return h.lost
}
