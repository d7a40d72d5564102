package leasetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

const (
	long  = 10 * time.Minute       // a TTL that no test outlasts
	short = 200 * time.Millisecond // a TTL that is waited for

	// coarse is more than a step of any store's clock, which has at least
	// milliseconds.
	coarse = 20 * time.Millisecond
)

var soon = 20 * time.Second // only a hang takes longer

// kinds are what most rules are checked for. A semaphore of one slot excludes
// like a lease.
var kinds = []struct {
	name  string
	slots int
}{{"lease", 0}, {"semaphore", 1}}

func forKinds(t *testing.T, check func(t *testing.T, slots int)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			check(t, k.slots)
		})
	}
}

func newName() string { return "leasetest:" + rand.Text() }

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}

// store is the backend under test, with calls that must not fail.
type store struct{ leases.Backend }

// granted is a hold, and when it was asked for.
type granted struct {
	leases.Hold
	ttl            time.Duration
	sent, answered time.Time
}

// surelyLive reports whether the store can't have seen the TTL pass yet: it
// counts from when the request came in.
func (g granted) surelyLive() bool { return time.Now().Before(g.sent.Add(g.ttl)) }

// awaitExpiry returns when the store must have seen the TTL pass: it began to
// count before the answer came.
func (g granted) awaitExpiry() { time.Sleep(time.Until(g.answered.Add(g.ttl + coarse))) }

func (s store) acquire(t *testing.T, c leases.Claim) leases.Grant {
	t.Helper()
	g, err := s.Acquire(bounded(t), c)
	require.NoError(t, err, "Acquire %q as %q, slots %d: neither held nor busy", c.Name, c.Owner, c.Slots)
	return g
}

// hold acquires what must be free.
func (s store) hold(t *testing.T, rule string, c leases.Claim) granted {
	t.Helper()
	sent := time.Now()
	g := s.acquire(t, c)
	answered := time.Now()
	require.True(t, g.Held, "%s: %q must be granted to %q (slots %d)", rule, c.Name, c.Owner, c.Slots)
	require.Positive(t, g.Fence, "%s: a grant has a fence", rule)
	require.Zero(t, g.RetryAfter, "%s: a grant has no RetryAfter", rule)
	return granted{leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner, Fence: g.Fence}, c.TTL, sent, answered}
}

// busy attempts what others hold.
func (s store) busy(t *testing.T, rule string, c leases.Claim) leases.Grant {
	t.Helper()
	g := s.acquire(t, c)
	require.False(t, g.Held, "%s: %q is held by others and must not be granted to %q (slots %d)", rule, c.Name, c.Owner, c.Slots)
	require.Zero(t, g.Fence, "%s: a refused attempt has no fence", rule)
	return g
}

func (s store) refreshed(t *testing.T, rule string, h leases.Hold, ttl time.Duration) {
	t.Helper()
	ok, err := s.Refresh(bounded(t), h, ttl)
	require.NoError(t, err)
	require.True(t, ok, "%s: %q with fence %d holds %q and must be able to refresh", rule, h.Owner, h.Fence, h.Name)
}

func (s store) notRefreshed(t *testing.T, rule string, h leases.Hold, why string) {
	t.Helper()
	ok, err := s.Refresh(bounded(t), h, long)
	require.NoError(t, err)
	require.False(t, ok, "%s: %q with fence %d must not be able to refresh %q: %s", rule, h.Owner, h.Fence, h.Name, why)
}

func (s store) released(t *testing.T, rule string, h leases.Hold) {
	t.Helper()
	ok, err := s.Release(bounded(t), h)
	require.NoError(t, err)
	require.True(t, ok, "%s: %q with fence %d holds %q and must be able to release", rule, h.Owner, h.Fence, h.Name)
}

func (s store) notReleased(t *testing.T, rule string, h leases.Hold, why string) {
	t.Helper()
	ok, err := s.Release(bounded(t), h)
	require.NoError(t, err)
	require.False(t, ok, "%s: %q with fence %d must not be able to release %q: %s", rule, h.Owner, h.Fence, h.Name, why)
}

// handle returns a handle on the backend under test: a lease for slots 0.
func (s store) handle(name string, slots int, ttl time.Duration, opts ...leases.Option) *leases.Handle {
	opts = append([]leases.Option{leases.On(s.Backend)}, opts...)
	if slots == 0 {
		return leases.Lease(name, ttl, opts...)
	}
	return leases.Semaphore(name, slots, ttl, opts...)
}

// heldShortly returns a handle that has been acquired for a short time, and
// that time.
func (s store) heldShortly(t *testing.T, rule, name string, slots int) (h *leases.Handle, ttl time.Duration) {
	t.Helper()
	inTime(t, short, func(try time.Duration) bool {
		h, ttl = s.handle(name, slots, try), try
		began := time.Now()
		err := h.Acquire(bounded(t))
		if err != nil && time.Since(began) >= ttl {
			return false
		}
		require.NoError(t, err, rule)
		return true
	})
	return h, ttl
}

// becomesFree waits until an owner that nobody knows can acquire name, and
// releases it again.
func (s store) becomesFree(t *testing.T, rule, name string, slots int) {
	t.Helper()
	c := leases.Claim{Name: name, Slots: slots, Owner: "probe", TTL: long}
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		if g := s.acquire(t, c); g.Held {
			s.released(t, rule, leases.Hold{Name: name, Slots: slots, Owner: "probe", Fence: g.Fence})
			return
		}
		require.True(t, time.Now().Before(end), "%s: %q must be free again", rule, name)
	}
}

// inTime calls check with longer and longer TTLs until it reports that no
// answer came too late to tell.
func inTime(t *testing.T, ttl time.Duration, check func(ttl time.Duration) bool) {
	t.Helper()
	for tries := 0; tries < 3; tries++ {
		if check(ttl) {
			return
		}
		ttl *= 4
	}
	require.Fail(t, "too slow to tell", "the store or this machine took longer than %v", ttl/4)
}

// concurrently calls f(0) to f(n-1) at once and fails the test with their
// errors.
func concurrently(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			errs[i] = f(i)
		})
	}
	close(begin)
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// anyFence names whichever hold the owner has.
func anyFence(h leases.Hold) leases.Hold {
	h.Fence = 0
	return h
}

func owner(i int) string { return fmt.Sprintf("owner-%d", i) }
