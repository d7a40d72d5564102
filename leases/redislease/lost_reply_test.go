package redislease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

// behindProxy returns a backend whose replies p can lose, and one that goes to
// the same server directly. The server knows the scripts already.
func behindProxy(t *testing.T, slots int) (p *proxy, b, direct *redislease.Backend) {
	c := teststore.Redis(t)
	p = newProxy(t, c.Options().Addr)
	opts := *c.Options()
	opts.Addr, opts.Dialer = p.addr, nil
	through := redis.NewClient(&opts)
	t.Cleanup(func() { through.Close() })
	b, direct = redislease.New(through), redislease.New(c)
	warm := claim("warm", slots, "a")
	g := acquire(t, b, warm)
	refreshed(t, b, hold(warm, g), true)
	released(t, b, hold(warm, g), true)
	return p, b, direct
}

func refreshed(t *testing.T, b leases.Backend, h leases.Hold, want bool) {
	t.Helper()
	ok, err := b.Refresh(t.Context(), h, time.Minute)
	require.NoError(t, err)
	require.Equal(t, want, ok)
}

func released(t *testing.T, b leases.Backend, h leases.Hold, want bool) {
	t.Helper()
	ok, err := b.Release(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, want, ok)
}

func busy(t *testing.T, b leases.Backend, c leases.Claim) leases.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), c)
	require.NoError(t, err)
	require.False(t, g.Held)
	return g
}

// TestCase18_LostReply: a client whose reply was lost sends the command again.
// It leaves one hold, and a release that was applied the first time is not
// reported as lost. Another call for the same hold finds nothing.
func TestCase18_LostReply(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			p, b, direct := behindProxy(t, slots)
			nothing := func() {}
			cl := claim("x", slots, "a")

			p.dropNextReply(nothing)
			g := acquire(t, b, cl)
			require.Equal(t, 1, p.dropped(), "the reply of the acquire")
			other := claim("x", slots, "b")
			if slots > 0 { // it has taken one slot, not two
				acquire(t, direct, other)
				other.Owner = "c"
			}
			busy(t, direct, other)

			p.dropNextReply(nothing)
			refreshed(t, b, hold(cl, g), true)
			require.Equal(t, 2, p.dropped(), "the reply of the refresh")

			p.dropNextReply(nothing)
			released(t, b, hold(cl, g), true)
			require.Equal(t, 3, p.dropped(), "the reply of the release")
			released(t, b, hold(cl, g), false)
			acquire(t, direct, other)
		})
	}
}

// TestCase18_LostReplyAndOthersSince: before the release is sent again, others
// acquire and release the name, as a waiter does that was woken by it.
func TestCase18_LostReplyAndOthersSince(t *testing.T) {
	for kind, slots := range kinds {
		for since, others := range map[string]func(t *testing.T, b *redislease.Backend){
			"one holds": func(t *testing.T, b *redislease.Backend) {
				acquire(t, b, claim("x", slots, "b"))
			},
			"many have released": func(t *testing.T, b *redislease.Backend) {
				for i := range 100 {
					c := claim("x", slots, fmt.Sprint("b", i))
					released(t, b, hold(c, acquire(t, b, c)), true)
				}
			},
			"the owner holds again": func(t *testing.T, b *redislease.Backend) {
				acquire(t, b, claim("x", slots, "a"))
			},
		} {
			t.Run(kind+" "+since, func(t *testing.T) {
				p, b, direct := behindProxy(t, slots)
				cl := claim("x", slots, "a")
				g := acquire(t, b, cl)
				p.dropNextReply(func() { others(t, direct) })
				released(t, b, hold(cl, g), true)
				require.Equal(t, 1, p.dropped())
				released(t, b, hold(cl, g), false)
				if since == "the owner holds again" {
					refreshed(t, direct, leases.Hold{Name: "x", Slots: slots, Owner: "a"}, true)
				}
			})
		}
	}
}

// TestCase18_NotHeldIsNotReleased: the other way round, a release that found
// nothing the first time finds nothing when it is sent again.
func TestCase18_NotHeldIsNotReleased(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			p, b, direct := behindProxy(t, slots)
			cl := claim("x", slots, "a")
			g := acquire(t, direct, cl)
			released(t, direct, hold(cl, g), true)
			p.dropNextReply(func() {})
			released(t, b, hold(cl, g), false)
			require.Equal(t, 1, p.dropped())
		})
	}
}
