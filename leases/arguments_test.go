package leases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestR11_EveryArgumentOfAHandleIsChecked(t *testing.T) {
	const (
		name  = "name must be 1 to 512 bytes of valid UTF-8 without NUL, got "
		owner = "owner must be 1 to 256 bytes of valid UTF-8 without NUL, got "
		ttl   = "ttl must be 1ms to 10 years (87600h), got "
		slots = "slots must be 1 to 100000, got "
		wait  = "wait must be 0 or more, got "
	)
	b := newScripted()
	lease := func(name string, ttl time.Duration, opts ...leases.Option) *leases.Handle {
		return leases.Lease(name, ttl, append(opts, leases.On(b))...)
	}
	semaphore := func(name string, slots int, ttl time.Duration) *leases.Handle {
		return leases.Semaphore(name, slots, ttl, leases.On(b))
	}
	for _, c := range []struct {
		h    *leases.Handle
		want string
	}{
		{lease("", time.Hour), name + "an empty string"},
		{lease(strings.Repeat("x", 513), time.Hour), name + "513 bytes"},
		{lease("a\xff", time.Hour), name + `invalid UTF-8: "a\xff"`},
		{lease("a\x00b", time.Hour), name + `a NUL byte: "a\x00b"`},
		{semaphore("", 1, time.Hour), name + "an empty string"},
		{lease("x", 0), ttl + "0s"},
		{lease("x", -time.Second), ttl + "-1s"},
		{lease("x", time.Millisecond-1), ttl + "999.999µs"},
		{lease("x", leases.MaxTTL+1), ttl + "87600h0m0.000000001s"},
		{semaphore("x", 1, 0), ttl + "0s"},
		{semaphore("x", 0, time.Hour), slots + "0"},
		{semaphore("x", -1, time.Hour), slots + "-1"},
		{semaphore("x", 100_001, time.Hour), slots + "100001"},
		{lease("x", time.Hour, leases.Owner("")), owner + "an empty string"},
		{lease("x", time.Hour, leases.Owner(strings.Repeat("o", 257))), owner + "257 bytes"},
		{lease("x", time.Hour, leases.Owner("\xff")), owner + `invalid UTF-8: "\xff"`},
		{lease("x", time.Hour, leases.Owner("\x00")), owner + `a NUL byte: "\x00"`},
		{lease("x", time.Hour, leases.Wait(-1)), wait + "-1ns"},
		{leases.Lease("x", time.Hour, leases.On(nil)), "backend must be a backend, got <nil>"},
		{lease("", 0, leases.Wait(-1)), name + "an empty string"}, // the first of several
	} {
		_, tryErr := c.h.TryAcquire(t.Context())
		doErr := c.h.Do(t.Context(), func(context.Context) error {
			t.Error("fn has run")
			return nil
		})
		for entry, err := range map[string]error{
			"Acquire": c.h.Acquire(t.Context()), "TryAcquire": tryErr, "Do": doErr,
			"Refresh": c.h.Refresh(t.Context()), "RefreshFor": c.h.RefreshFor(t.Context(), time.Hour),
			"Release": c.h.Release(t.Context()),
		} {
			require.ErrorIs(t, err, leases.ErrInvalid, entry)
			require.EqualError(t, err, "leases: invalid argument: "+c.want, entry)
		}
		ctx, cancel := c.h.Context(t.Context())
		require.ErrorIs(t, context.Cause(ctx), leases.ErrInvalid)
		cancel()
		c.h.Detach()
		require.Zero(t, c.h.Deadline())
		require.Zero(t, c.h.Fence())
		require.Nil(t, c.h.Lost())
	}
	require.Empty(t, b.made, "nothing is sent to the store")
}

func TestR11_TheTTLOfRefreshForIsChecked(t *testing.T) {
	b := newScripted()
	h := leases.Lease("x", time.Hour, leases.On(b))
	check := func() {
		t.Helper()
		for _, ttl := range []time.Duration{0, -1, time.Millisecond - 1, leases.MaxTTL + 1} {
			err := h.RefreshFor(t.Context(), ttl)
			require.ErrorIs(t, err, leases.ErrInvalid)
			require.ErrorContains(t, err, "ttl must be 1ms to 10 years (87600h), got "+ttl.String())
		}
	}
	check()
	require.NoError(t, h.Acquire(t.Context()))
	check()
	require.Empty(t, b.calls("refresh"))
	require.NoError(t, h.RefreshFor(t.Context(), leases.MaxTTL))
	require.NoError(t, h.RefreshFor(t.Context(), time.Hour+1))
	require.Equal(t, time.Hour+time.Millisecond, b.calls("refresh")[1].ttl, "rounded up")
	require.NoError(t, h.Release(t.Context()))
}

func TestR11_TheTTLIsRoundedUpToAMillisecond(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Millisecond:         time.Millisecond,
		time.Millisecond + 1:     2 * time.Millisecond,
		time.Second - 1:          time.Second,
		time.Second:              time.Second,
		leases.MaxTTL - 1:        leases.MaxTTL,
		1500 * time.Microsecond:  2 * time.Millisecond,
		90*time.Second + 999_999: 90*time.Second + time.Millisecond,
	} {
		b := newScripted()
		h := leases.Lease("x", ttl, leases.On(b))
		require.NoError(t, h.Acquire(t.Context()))
		require.Equal(t, want, b.calls("acquire")[0].ttl)
		c, err := leases.Claim{Name: "x", Owner: "a", TTL: ttl}.Check()
		require.NoError(t, err)
		require.Equal(t, want, c.TTL)
	}
}

// TestR11_ABackendsArguments: what every backend calls before it sends
// anything. Package leasetest sends bad ones through each of them.
func TestR11_ABackendsArguments(t *testing.T) {
	valid := leases.Claim{Name: "x", Slots: 2, Owner: "a", TTL: time.Hour}
	for want, change := range map[string]func(c *leases.Claim){
		"name must be 1 to 512 bytes":  func(c *leases.Claim) { c.Name = "" },
		"owner must be 1 to 256 bytes": func(c *leases.Claim) { c.Owner = strings.Repeat("ü", 129) },
		"slots must be 1 to 100000":    func(c *leases.Claim) { c.Slots = -1 },
		"ttl must be 1ms to 10 years":  func(c *leases.Claim) { c.TTL = 0 },
	} {
		c := valid
		change(&c)
		_, err := c.Check()
		require.ErrorIs(t, err, leases.ErrInvalid)
		require.ErrorContains(t, err, want)
		if c.TTL > 0 {
			err = leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner}.Check()
			require.ErrorIs(t, err, leases.ErrInvalid)
			require.ErrorContains(t, err, want)
		}
	}
	_, err := valid.Check()
	require.NoError(t, err)
	require.NoError(t, leases.Hold{Name: "x", Owner: "a"}.Check())
	require.ErrorContains(t, leases.Hold{Name: "x", Owner: "a", Fence: -1}.Check(), "fence must be 0 or more, got -1")
}

func TestR11_ANilOptionIsNone(t *testing.T) {
	h := leases.Lease("x", time.Hour, nil, leases.On(newScripted()))
	require.NoError(t, h.Acquire(t.Context()))
	require.NoError(t, h.Release(t.Context()))
}
