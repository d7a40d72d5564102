// Package redislease keeps leases and semaphores in Redis 6.2 or newer, or
// Valkey: on a single server, behind Sentinel or on a Cluster.
//
//	leases.Configure(redislease.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})))
//
// Each operation is one script and one round trip. The clock is the server's.
//
// # Keys
//
// The name n uses the keys sm:{n}, sm:{n}:fence and, as a semaphore, sm:{n}:owners.
// The braces are the hash tag that keeps them in one slot of a Cluster; %, {
// and } in the name are written as %25, %7B and %7D. The first and the third
// expire with the hold, the fence's a week later: R5 does not need it, as the
// server's clock has gone on by then.
//
// The scripts use GET, SET, DEL, PTTL, PEXPIRE, TYPE, TIME, ZADD, ZREM, ZSCORE,
// ZCOUNT, ZRANGEBYSCORE, HSET, HGET, HDEL and PUBLISH, and are called by EVALSHA
// and EVAL.
//
// A release is published on sm:{n}:free. While somebody waits, a process
// subscribes to the names it waits for, on one connection for all; without
// SUBSCRIBE waiting works by its back-off.
//
// # What is not promised
//
// Redis replicates asynchronously and may lose its last writes in a fail-over,
// or all when it restarts without persistence: then a lease that is held is
// granted again. Its fence is larger than the lost one's all the same, so
// that a resource which refuses smaller fences is safe. maxmemory policies
// that evict keys can end a hold early; use noeviction.
package redislease

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
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
	err     error // of an option

	process string // with calls, names each call
	calls   atomic.Uint64

	watched subscription.Set
}

// Option changes a Backend from its defaults.
type Option func(*Backend)

// Prefix begins every key, to keep two applications on one server apart. The
// default is "sm:". It must not have braces, which are for the hash tag: then
// every operation returns an error that matches leases.ErrInvalid.
func Prefix(p string) Option {
	return func(b *Backend) {
		b.prefix = p
		if strings.ContainsAny(p, "{}") {
			b.err = fmt.Errorf("%w: prefix must be without { and }, got %q", leases.ErrInvalid, p)
		}
	}
}

const defaultTimeout = 5 * time.Second

// Timeout bounds one operation, with the client's own retries, when ctx does
// not end it sooner. The default is 5 s; 0 or less is the default.
func Timeout(d time.Duration) Option {
	return func(b *Backend) {
		if d > 0 {
			b.timeout = d
		}
	}
}

// New returns a backend on c.
func New(c redis.UniversalClient, opts ...Option) *Backend {
	b := &Backend{client: c, prefix: "sm:", timeout: defaultTimeout, process: rand.Text()}
	b.watched.Run = b.listen
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	return b
}

// fenceKept is how long a fence stays after its hold.
const fenceKept = 7 * 24 * time.Hour

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	k := b.keys(c.Name)
	script, args := acquireLease, []any{c.Owner, c.TTL.Milliseconds(), (c.TTL + fenceKept).Milliseconds()}
	if c.Slots > 0 {
		script, args = acquireSemaphore, append(args, c.Slots)
	}
	n, err := b.run(ctx, script, []string{k.name, k.fence, k.owners}, args)
	switch {
	case err != nil:
		return leases.Grant{}, err
	case n == 0:
		return leases.Grant{}, c.KindError()
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
	k := b.keys(h.Name)
	script, keys := refreshLease, []string{k.name}
	if h.Slots > 0 {
		script, keys = refreshSemaphore, []string{k.name, k.owners}
	}
	n, err := b.run(ctx, script, keys, []any{h.Owner, h.Fence, ttl.Milliseconds()})
	return n == 1, err
}

// Release implements leases.Backend.
func (b *Backend) Release(ctx context.Context, h leases.Hold) (bool, error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	k := b.keys(h.Name)
	script, keys := releaseLease, []string{k.name, k.fence}
	if h.Slots > 0 {
		script, keys = releaseSemaphore, []string{k.name, k.fence, k.owners}
	}
	call := b.process + strconv.FormatUint(b.calls.Add(1), 36)
	n, err := b.run(ctx, script, keys, []any{h.Owner, h.Fence, call, fenceKept.Milliseconds()})
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
