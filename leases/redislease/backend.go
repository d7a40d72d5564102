package redislease

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/internal/subscription"
	"github.com/simple-module/core/leases"
)

// Backend keeps leases and semaphores in Redis. It is safe for concurrent use.
// It does not close the client.
type Backend struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration
	err     error // of New's arguments

	process string // names this backend among those of all processes

	queue   queue
	watched subscription.Set
}

// New returns a backend on c, which it does not close. Arguments that can't
// be used make every operation return an error that matches leases.ErrInvalid.
func New(c redis.UniversalClient, opts ...Option) *Backend {
	b := &Backend{client: c, prefix: "sm:", timeout: defaultTimeout, process: rand.Text()[:16]}
	b.watched.Run = b.listen
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	b.err = b.check()
	b.queue.init(c, b.timeout)
	return b
}

const (
	// fenceKept is how long a fence stays after its hold.
	fenceKept = 7 * 24 * time.Hour

	// unknown is the answer to an acquire that can't tell when to try again:
	// others are in line for what is free, or the lease is held by a key that
	// somebody has made persistent.
	unknown = -1 << 53
)

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	return b.acquire(ctx, c)
}

// acquire makes one attempt; place is nothing, or a ticket and whether it
// waits again.
func (b *Backend) acquire(ctx context.Context, c leases.Claim, place ...any) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	key := b.key(c.Name)
	script := acquireLease
	if c.Slots > 0 {
		script = acquireSemaphore
	}
	// Ten words at most without a place: of a client that has yet to log in
	// Redis reads no more, and then says NOAUTH.
	args := append([]any{c.Owner, c.TTL.Milliseconds(), (c.TTL + fenceKept).Milliseconds(), c.Slots}, place...)
	n, err := b.run(ctx, script, []string{key, fenceKey(key), lineKey(key)}, args)
	switch {
	case err != nil:
		return leases.Grant{}, err
	case n == 0:
		return leases.Grant{}, c.KindError()
	case n == unknown:
		return leases.Grant{}, nil
	case n < 0:
		return leases.Grant{RetryAfter: time.Duration(-n) * time.Millisecond}, nil
	}
	return leases.Grant{Held: true, Fence: n}, nil
}

// Refresh implements leases.Backend.
func (b *Backend) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (bool, error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	ttl, err := leases.CheckTTL(ttl)
	if err != nil {
		return false, err
	}
	script := refreshLease
	if h.Slots > 0 {
		script = refreshSemaphore
	}
	n, err := b.run(ctx, script, []string{b.key(h.Name)}, []any{h.Owner, h.Fence, ttl.Milliseconds()})
	return n == 1, err
}

// Release implements leases.Backend.
func (b *Backend) Release(ctx context.Context, h leases.Hold) (bool, error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	script := releaseLease
	if h.Slots > 0 {
		script = releaseSemaphore
	}
	key := b.key(h.Name)
	// No answer is looked at later than b.timeout after the call began.
	kept := (b.timeout + time.Millisecond).Milliseconds()
	n, err := b.run(ctx, script, []string{key, releasedKey(key, b.process), lineKey(key)}, []any{h.Owner, h.Fence, kept, &again{}})
	return n == 1, err
}

// again is the argument that tells a script whether the client sends it again,
// because it got no reply: the client asks for its text each time.
type again struct{ sent bool }

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *again) MarshalBinary() ([]byte, error) {
	if a.sent {
		return []byte{'1'}, nil
	}
	a.sent = true
	return []byte{'0'}, nil
}
