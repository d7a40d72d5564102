package leasetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

const textBounds = "bytes of valid UTF-8 without NUL"

// badText is what neither a name nor an owner may be; most is the longest.
func badText(most int) map[string]string {
	return map[string]string{
		"empty":           "",
		"a byte too long": strings.Repeat("x", most+1),
		"a rune too long": strings.Repeat("ü", most/2) + "ü",
		"far too long":    strings.Repeat("x", 1<<20),
		"not UTF-8":       "import:\xff",
		"a rune cut off":  "import:\xc3",
		"a surrogate":     "import:\xed\xa0\x80",
		"NUL":             "import:\x0042",
		"NUL only":        "\x00",
		"an overlong NUL": "import:\xc0\x80",
	}
}

var badTTLs = []time.Duration{0, -time.Second, time.Nanosecond, time.Millisecond - 1, leases.MaxTTL + 1, 1<<63 - 1, -1 << 63}

func arguments(t *testing.T, s store) {
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		refusedByTheBackend(t, s)
	})
	t.Run("refused_by_handles", func(t *testing.T) {
		t.Parallel()
		refusedByHandles(t, s)
	})
	t.Run("accepted", func(t *testing.T) {
		t.Parallel()
		accepted(t, s)
	})
	t.Run("every_valid_name_works", func(t *testing.T) {
		t.Parallel()
		everyNameWorks(t, s)
	})
	t.Run("TTL_rounded_up", func(t *testing.T) {
		t.Parallel()
		roundedUp(t, s)
	})
}

func refused(t *testing.T, err error, what, argument, bounds string) {
	t.Helper()
	require.ErrorIs(t, err, leases.ErrInvalid, "R11: %s: %s", argument, what)
	require.Contains(t, err.Error(), argument, "R11: the message names the argument")
	require.Contains(t, err.Error(), bounds, "R11: the message gives its bounds")
}

func refusedByTheBackend(t *testing.T, s store) {
	ctx := bounded(t)
	held := s.hold(t, "R11", leases.Claim{Name: newName(), Owner: "a", TTL: long})
	heldSlot := s.hold(t, "R11", leases.Claim{Name: newName(), Slots: 2, Owner: "a", TTL: long})
	free := newName()

	// Each bad argument is tried on a name that is held and on one that is free.
	try := func(what, argument, bounds string, change func(c *leases.Claim, h *leases.Hold)) {
		t.Helper()
		for _, h := range []leases.Hold{held.Hold, heldSlot.Hold, {Name: free, Owner: "a"}} {
			c := leases.Claim{Name: h.Name, Slots: h.Slots, Owner: h.Owner, TTL: long}
			change(&c, &h)
			if argument != "fence" {
				g, err := s.Acquire(ctx, c)
				refused(t, err, what, argument, bounds)
				require.Zero(t, g, "R11: no grant")
			}
			ok, err := s.Refresh(ctx, h, c.TTL)
			refused(t, err, what, argument, bounds)
			require.False(t, ok, "R11")
			if argument != "ttl" {
				ok, err := s.Release(ctx, h)
				refused(t, err, what, argument, bounds)
				require.False(t, ok, "R11")
			}
		}
	}
	for what, text := range badText(leases.MaxName) {
		try(what, "name", "1 to 512 "+textBounds, func(c *leases.Claim, h *leases.Hold) { c.Name, h.Name = text, text })
	}
	for what, text := range badText(leases.MaxOwner) {
		try(what, "owner", "1 to 256 "+textBounds, func(c *leases.Claim, h *leases.Hold) { c.Owner, h.Owner = text, text })
	}
	for _, n := range []int{-1, leases.MaxSlots + 1, 1<<63 - 1, -1 << 63} {
		try("out of bounds", "slots", "1 to 100000", func(c *leases.Claim, h *leases.Hold) { c.Slots, h.Slots = n, n })
	}
	for _, ttl := range badTTLs {
		try(ttl.String(), "ttl", "1ms to 10 years", func(c *leases.Claim, _ *leases.Hold) { c.TTL = ttl })
	}
	try("negative", "fence", "0 or more", func(_ *leases.Claim, h *leases.Hold) { h.Fence = -1 })

	for _, h := range []granted{held, heldSlot} {
		s.refreshed(t, "R11: what was refused changed nothing", h.Hold, long)
	}
	s.hold(t, "R11: what was refused changed nothing", leases.Claim{Name: heldSlot.Name, Slots: 2, Owner: "b", TTL: long})
	s.hold(t, "R11: what was refused changed nothing", leases.Claim{Name: free, Owner: "b", TTL: long})
}

func refusedByHandles(t *testing.T, s store) {
	ctx, f := bounded(t), newFaulty(s.Backend)
	on := leases.On(f)
	try := func(what, argument, bounds string, h *leases.Handle) {
		t.Helper()
		nothing := func(context.Context) error {
			require.Fail(t, "R11: Do runs nothing")
			return nil
		}
		_, tryErr := h.TryAcquire(ctx)
		for _, err := range []error{h.Acquire(ctx), tryErr, h.Do(ctx, nothing), h.Refresh(ctx), h.RefreshFor(ctx, long), h.Release(ctx)} {
			refused(t, err, what, argument, bounds)
			require.NotErrorIs(t, err, leases.ErrLost, "R11")
		}
		require.Zero(t, h.Fence(), "R11")
		require.Zero(t, h.Deadline(), "R11")
	}
	name := newName()
	for what, text := range badText(leases.MaxName) {
		try(what, "name", "1 to 512 "+textBounds, leases.Lease(text, long, on))
		try(what, "name", "1 to 512 "+textBounds, leases.Semaphore(text, 2, long, on))
	}
	for what, text := range badText(leases.MaxOwner) {
		try(what, "owner", "1 to 256 "+textBounds, leases.Lease(name, long, on, leases.Owner(text)))
	}
	for _, n := range []int{0, -1, leases.MaxSlots + 1} {
		try("out of bounds", "slots", "1 to 100000", leases.Semaphore(name, n, long, on))
	}
	for _, ttl := range badTTLs {
		try(ttl.String(), "ttl", "1ms to 10 years", leases.Lease(name, ttl, on))
		try(ttl.String(), "ttl", "1ms to 10 years", leases.Semaphore(name, 2, ttl, on))
	}
	try("negative", "wait", "0 or more", leases.Lease(name, long, on, leases.Wait(-1)))
	require.Empty(t, append(append(f.calls(acquiring), f.calls(refreshing)...), f.calls(releasing)...), "R11: nothing is sent to the store")

	h := leases.Lease(name, long, on)
	require.NoError(t, h.Acquire(ctx))
	for _, ttl := range badTTLs {
		refused(t, h.RefreshFor(ctx, ttl), ttl.String(), "ttl", "1ms to 10 years")
	}
	require.Empty(t, f.calls(refreshing), "R11: nothing is sent to the store")
	require.NoError(t, h.Refresh(ctx), "R11: what was refused changed nothing")
	require.NoError(t, h.Release(ctx))
}

func accepted(t *testing.T, s store) {
	for _, c := range []leases.Claim{
		{Name: newName(), Owner: "a", TTL: leases.MaxTTL},
		{Name: newName(), Slots: 1, Owner: "a", TTL: leases.MaxTTL},
		{Name: newName(), Slots: leases.MaxSlots, Owner: "a", TTL: leases.MaxTTL - 1},
		{Name: newName(), Owner: strings.Repeat("o", leases.MaxOwner), TTL: long},
		{Name: newName(), Slots: 1, Owner: strings.Repeat("ü", leases.MaxOwner/2), TTL: long},
	} {
		h := s.hold(t, "R11", c)
		other := c
		other.Owner = "b"
		if c.Slots <= 1 {
			g := s.busy(t, "R11", other)
			require.LessOrEqual(t, g.RetryAfter, leases.MaxTTL, "R11")
		}
		s.refreshed(t, "R11", h.Hold, leases.MaxTTL)
		s.released(t, "R11", h.Hold)
	}
	s.hold(t, "R11", leases.Claim{Name: newName(), Owner: "a", TTL: leases.MinTTL})
	s.hold(t, "R11", leases.Claim{Name: newName(), Slots: 1, Owner: "a", TTL: leases.MinTTL})
}

// oddNames are valid. Each is a name, and an owner, of its own.
var oddNames = []string{
	"}", "{", "{}", "{}x", "}{", "a{b}c", "{a}{b}", "{{a}}", "x{", "x}", "{x", "}x", "a}b{c",
	"'", `"`, "`", `\`, `\\`, `\0`, `'; DROP TABLE sm_lease; --`, `" OR "1"="1`, "$1", "?1", ":name", "@p1", "$$", "/* */",
	`"]] os.exit() --[[`, "redis.call('FLUSHALL')", "KEYS[1]", "ARGV[1]",
	"%", "_", "%s", "%d", "%%", "*", "?", "[a-z]",
	" ", "  ", "\t", "\n", "\r\n", "a\nb", " a", "a ", "a", "A",
	"\x1b[31mred\x1b[0m", "\x01", "\x7f", "\u202eltr", "\ufeff",
	"ü", "u\u0308", "Ü", "ß", "ss", "İ", "i", "日本語", "👩‍👩‍👧", "\U0010ffff", "\ufffd",
	"a:fence", "a:owners", "a:f", "a:0", "a:-1", "fence", ":", "::", "/", "../..", "NULL", "null", "nil", "0", "-1", "1e309", "true",
}

// everyNameWorks holds them all at once: names that a store confuses are busy.
func everyNameWorks(t *testing.T, s store) {
	prefix := newName()
	names := make([]string, 0, 2*len(oddNames)+4)
	for _, odd := range oddNames {
		names = append(names, prefix+odd, odd+prefix) // the prefix is what makes it new
	}
	for _, fill := range []string{"x", "{", "'"} {
		names = append(names, prefix+strings.Repeat(fill, leases.MaxName-len(prefix)))
	}
	longest := prefix + strings.Repeat("日", (leases.MaxName-len(prefix))/3)
	names = append(names, longest, prefix+strings.Repeat("x", 255), prefix+strings.Repeat("x", 256))

	odd := func(i int) string { return oddNames[i%len(oddNames)] }
	holds := make([]granted, len(names))
	for i, name := range names {
		holds[i] = s.hold(t, "R11: every valid name works", leases.Claim{Name: name, Slots: i % 2, Owner: odd(i), TTL: long})
	}
	for i, h := range holds {
		s.busy(t, "R11: every valid name works", leases.Claim{Name: h.Name, Slots: h.Slots, Owner: odd(i + 1), TTL: long})
		s.refreshed(t, "R11: every valid name works", h.Hold, long)
	}
	for _, h := range holds {
		s.released(t, "R11: every valid name works", h.Hold)
		s.notReleased(t, "R11: every valid name works", h.Hold, "it has been released")
	}
}

// roundedUp can tell only on a store that answers within a millisecond; on a
// slower one the TTL has passed before anybody can ask.
func roundedUp(t *testing.T, s store) {
	const (
		asked   = 2*time.Millisecond - time.Nanosecond
		whole   = 2 * time.Millisecond
		measure = 200 * time.Microsecond // between two clocks
	)
	for _, k := range kinds {
		for range 20 {
			c := leases.Claim{Name: newName(), Slots: k.slots, Owner: "a", TTL: asked}
			sent := time.Now()
			require.True(t, s.acquire(t, c).Held, "R11")
			c.Owner = "b"
			for !s.acquire(t, c).Held {
				require.Less(t, time.Since(sent), soon, "R11: a TTL of %v never passes", asked)
			}
			require.GreaterOrEqual(t, time.Since(sent), whole-measure, "R11: a %s's TTL of %v is rounded up to %v", k.name, asked, whole)
		}
	}
}
