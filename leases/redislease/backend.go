package redislease

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
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

	process string // with calls, names each release
	calls   atomic.Uint64

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
	return b
}

const (
	// fenceKept is how long a fence stays after its hold.
	fenceKept = 7 * 24 * time.Hour

	// neverExpires is the answer to an acquire when the lease is held by a key
	// that somebody has made persistent.
	neverExpires = -1 << 53
)

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	key := b.key(c.Name)
	script, args := acquireLease, []any{c.Owner, c.TTL.Milliseconds(), (c.TTL + fenceKept).Milliseconds()}
	if c.Slots > 0 {
		script, args = acquireSemaphore, append(args, c.Slots)
	}
	n, err := b.run(ctx, script, []string{key, fenceKey(key)}, args)
	switch {
	case err != nil:
		return leases.Grant{}, err
	case n == 0:
		return leases.Grant{}, c.KindError()
	case n == neverExpires:
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
	call := b.process + strconv.FormatUint(b.calls.Add(1), 36)
	// No answer is looked at later than b.timeout after the call began.
	kept := (b.timeout + time.Millisecond).Milliseconds()
	n, err := b.run(ctx, script, []string{key, releasedKey(key, call)}, []any{h.Owner, h.Fence, kept})
	return n == 1, err
}

// run runs a script, by its digest if the server knows it. The client does not
// stop a read when ctx ends, so it is left behind then.
func (b *Backend) run(caller context.Context, s *redis.Script, keys []string, args []any) (int64, error) {
	if b.err != nil {
		return 0, b.err
	}
	ctx, cancel := context.WithTimeout(caller, b.timeout)
	defer cancel()
	type answer struct {
		n   int64
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		n, err := s.Run(ctx, b.client, keys, args...).Int64()
		answered <- answer{n, err}
	}()
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if a.err == nil {
		return a.n, nil
	}
	switch {
	case caller.Err() != nil:
		a.err = caller.Err()
	case ctx.Err() != nil:
		a.err = fmt.Errorf("no answer for %v", b.timeout)
	}
	return 0, fmt.Errorf("redis: %w", a.err)
}
