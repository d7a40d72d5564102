package leases

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Handle is one owner's access to a lease or semaphore. It is safe for
// concurrent use and may be acquired again after its hold has ended.
//
// A handle is one owner: acquiring it while it is held takes the older hold
// over (R4), which is then lost. Goroutines that are to exclude each other
// use a handle each.
type Handle struct {
	name     string
	slots    int
	ttl      time.Duration
	settings settings
	invalid  error

	mu       sync.Mutex
	owner    string
	attempts int // under way
	hold     *hold
}

// Lease returns a handle on the exclusive lease name, which expires ttl after
// each acquire or refresh. Nothing is sent until it is used; arguments that
// are out of bounds make every method return an error that matches ErrInvalid.
// The name has 1 to 512 bytes; ttl is 1 ms to 10 years, rounded up to a
// millisecond.
func Lease(name string, ttl time.Duration, opts ...Option) *Handle {
	return newHandle(name, 0, nil, ttl, opts)
}

// Semaphore returns a handle on one of the slots of the semaphore name, 1 to
// 100,000. A slot is granted while fewer than slots are held, whatever number
// others have used. The rest is as for Lease.
func Semaphore(name string, slots int, ttl time.Duration, opts ...Option) *Handle {
	return newHandle(name, slots, checkSlots(slots, 1), ttl, opts)
}

func newHandle(name string, slots int, badSlots error, ttl time.Duration, opts []Option) *Handle {
	h := &Handle{name: name, slots: slots}
	for _, o := range opts {
		if o != nil {
			o(&h.settings)
		}
	}
	h.owner = h.settings.owner
	if !h.settings.ownerGiven {
		h.owner = rand.Text()
	}
	rounded, badTTL := CheckTTL(ttl)
	h.ttl = rounded
	for _, err := range []error{checkText("name", name, MaxName), badSlots, badTTL, h.settings.check()} {
		if err != nil {
			h.invalid = err
			break
		}
	}
	return h
}

// Acquire acquires the name, waiting for it as the options say: by default
// until ctx ends. It returns nil only once the store has confirmed the hold.
//
// A name that stayed busy is a *NotAcquiredError, which matches
// ErrNotAcquired; when ctx ended the wait the error matches ctx's error too.
// A store that failed is that error, and never means busy.
func (h *Handle) Acquire(ctx context.Context) error {
	_, err := h.acquire(ctx, h.settings.nonBlocking)
	return err
}

// TryAcquire makes one attempt, whatever the options say. It returns false and
// nil when the name is busy.
func (h *Handle) TryAcquire(ctx context.Context) (bool, error) {
	_, err := h.acquire(ctx, true)
	if _, busy := err.(*NotAcquiredError); busy {
		return false, nil
	}
	return err == nil, err
}

func (h *Handle) acquire(ctx context.Context, oneAttempt bool) (*hold, error) {
	if h.invalid != nil {
		return nil, h.invalid
	}
	b := h.settings.backend
	if b == nil {
		b = Default()
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, &NotAcquiredError{Name: h.name})
	}
	var until <-chan time.Time
	if h.settings.waitGiven {
		oneAttempt = oneAttempt || h.settings.wait == 0
		if !oneAttempt {
			timer := time.NewTimer(h.settings.wait)
			defer timer.Stop()
			until = timer.C
		}
	}
	if !oneAttempt && !h.mayReacquire() {
		if w := joinLine(b, h.name, h.slots, true); w != nil {
			return h.wait(ctx, w, &NotAcquiredError{Name: h.name}, until)
		}
	}
	got, err := h.attempt(ctx, b, b)
	if busy, ok := err.(*NotAcquiredError); ok && !oneAttempt {
		return h.wait(ctx, joinLine(b, h.name, h.slots, false), busy, until)
	}
	return got, err
}

// mayReacquire reports whether the store may know a hold of this owner. Then
// the first attempt does not wait in line: a retry gets its own lease at once.
func (h *Handle) mayReacquire() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settings.ownerGiven || h.hold != nil && !h.hold.deadlineIfLive().IsZero()
}

// acquirer is a Backend, or the line in front of it.
type acquirer interface {
	Acquire(ctx context.Context, c Claim) (Grant, error)
}

// attempt asks the store once, through a. A busy name is a *NotAcquiredError.
func (h *Handle) attempt(ctx context.Context, b Backend, a acquirer) (*hold, error) {
	h.mu.Lock()
	owner := h.owner
	h.attempts++
	h.mu.Unlock()
	start := time.Now()
	g, err := a.Acquire(ctx, Claim{Name: h.name, Slots: h.slots, Owner: owner, TTL: h.ttl})
	if err == nil && g.Held && time.Since(start) >= h.ttl {
		err = errors.New("the answer took longer than the TTL, so the hold may be over")
	}

	h.mu.Lock()
	h.attempts--
	if err != nil {
		unknown := !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrKind)
		if unknown && h.abandonToken() {
			defer releaseInBackground(ctx, b, Hold{Name: h.name, Slots: h.slots, Owner: owner})
		}
		h.mu.Unlock()
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
		return nil, failed("acquire", h.name, err)
	}
	if !g.Held {
		h.mu.Unlock()
		return nil, &NotAcquiredError{Name: h.name, RetryAfter: g.RetryAfter}
	}
	got := newHold(b, Hold{Name: h.name, Slots: h.slots, Owner: owner, Fence: g.Fence}, start, h.ttl)
	older := h.hold
	if older != nil && older.Fence > got.Fence {
		older = got // two attempts of this handle: the answers came in another order than the grants
	} else {
		h.hold = got
	}
	h.mu.Unlock()

	if older != nil {
		older.lose(reasonTakenOver)
	}
	if h.settings.ownerGiven {
		registerOwner(got)
	}
	if h.settings.keepAlive {
		got.startKeepAlive(ctx)
	}
	return got, nil
}

// abandonToken gives the handle a new random token when nothing else may hold
// by the old one, and reports whether it did. What the old one may have
// acquired can then be released without ending a hold that is in use (R6).
// The caller holds mu.
func (h *Handle) abandonToken() bool {
	if h.settings.ownerGiven || h.attempts > 0 || h.hold != nil && !h.hold.deadlineIfLive().IsZero() {
		return false
	}
	h.owner = rand.Text()
	return true
}

// current returns the latest hold, or an error when there never was one.
func (h *Handle) current(op string) (*hold, error) {
	if h.invalid != nil {
		return nil, h.invalid
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return nil, lost(op, h.name, reasonNotHeld)
	}
	return h.hold, nil
}

// Refresh makes the hold last a whole TTL from now. An error that matches
// ErrLost says that the hold is over; after any other error it still lasts
// until Deadline.
func (h *Handle) Refresh(ctx context.Context) error { return h.RefreshFor(ctx, h.ttl) }

// RefreshFor makes the hold last ttl from now, 1 ms to 10 years; that may be
// shorter than it would have lasted. The rest is as for Refresh.
func (h *Handle) RefreshFor(ctx context.Context, ttl time.Duration) error {
	if h.invalid != nil {
		return h.invalid
	}
	ttl, err := CheckTTL(ttl)
	if err != nil {
		return err
	}
	cur, err := h.current("refresh")
	if err != nil {
		return err
	}
	return cur.refresh(ctx, ttl)
}

// Release ends the hold. An error that matches ErrLost says that there was
// none any more; it ended nobody else's. After any other error the store may
// or may not have applied it: the hold is no longer kept alive, and Release
// can be called again.
func (h *Handle) Release(ctx context.Context) error {
	cur, err := h.current("release")
	if err != nil {
		return err
	}
	return cur.release(ctx)
}

// Detach stops KeepAlive and leaves the hold to end at Deadline: inside Do,
// Do then does not release it. It does nothing when there is no hold.
func (h *Handle) Detach() {
	if cur, err := h.current("detach"); err == nil {
		cur.detach()
	}
}

// Do acquires, calls fn and releases: on return, on panic and when ctx has
// ended, with a few seconds of its own for that. fn's ctx carries the handle
// (FromContext) and is cancelled, with a cause that matches ErrLost, when the
// hold is lost. fn should return soon after that.
//
// Do returns Acquire's error without calling fn, or else fn's error, joined
// with one that matches ErrLost if the hold was lost before fn returned.
func (h *Handle) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	got, err := h.acquire(ctx, h.settings.nonBlocking)
	if err != nil {
		return err
	}
	bound, cancel := got.bind(context.WithValue(ctx, handleKey{}, h))
	defer func() {
		cancel()
		if lost := got.finish(ctx); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return fn(bound)
}

// finish releases a hold whose work is over. It returns an error only when the
// hold was lost: a release that failed costs others the rest of the TTL, but
// does not undo the work.
func (h *hold) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTime)
	defer cancel()
	h.mu.Lock()
	done := h.state == released || h.detached && h.alive() // fn saw to it
	h.mu.Unlock()
	if done {
		return nil
	}
	err := h.release(ctx)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	slog.WarnContext(ctx, "lease release failed; it ends with its TTL", "name", h.Name, "fence", h.Fence, "error", err)
	return nil
}

// Context returns a child of parent that carries the handle (FromContext) and
// is cancelled, with a cause that matches ErrLost, when the current hold is
// lost. Without a hold it is cancelled from the start. Call cancel when the
// work is over; it does not release.
func (h *Handle) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx = context.WithValue(parent, handleKey{}, h)
	cur, err := h.current("hold")
	if err != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return ctx, func() {}
	}
	return cur.bind(ctx)
}

type handleKey struct{}

// FromContext returns the innermost handle whose hold guards the work that ctx
// belongs to: inside Do, Context and every middleware.
func FromContext(ctx context.Context) (*Handle, bool) {
	h, ok := ctx.Value(handleKey{}).(*Handle)
	return h, ok
}

// Name returns the name.
func (h *Handle) Name() string { return h.name }

// Token returns the owner token. A random one is replaced after an attempt
// whose outcome is unknown.
func (h *Handle) Token() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner
}

// Fence returns the fence of the latest hold, which it keeps after that has
// ended; 0 before the first grant.
func (h *Handle) Fence() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return 0
	}
	return h.hold.Fence
}

// Deadline returns when this process must consider the hold over, counted from
// before the request for it was sent; the zero time when not held.
func (h *Handle) Deadline() time.Time {
	cur, err := h.current("deadline")
	if err != nil {
		return time.Time{}
	}
	return cur.deadlineIfLive()
}

// Lost returns a channel that is closed when the current hold ends without
// Release. It belongs to that hold: ask again after the next acquire. nil
// before the first grant.
func (h *Handle) Lost() <-chan struct{} {
	cur, err := h.current("lost")
	if err != nil {
		return nil
	}
	return cur.lostChan()
}
