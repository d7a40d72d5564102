package redislease_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

// TestR5_GarbageInTheFenceKey: what an operator wrote there does not keep the
// name from being acquired, nor the fence from being one.
func TestR5_GarbageInTheFenceKey(t *testing.T) {
	put := func(value string) func(*testing.T, *redis.Client) error {
		return func(t *testing.T, c *redis.Client) error { return c.Set(t.Context(), "sm:{x}:fence", value, 0).Err() }
	}
	for what, write := range map[string]func(*testing.T, *redis.Client) error{
		"text": put("what?"), "empty": put(""), "too large": put("99999999999999999999999"), "2^53": put("9007199254740992"),
		"infinite": put("inf"), "not a number": put("nan"), "negative": put("-5"), "fraction": put("17.5"),
		"a list": func(t *testing.T, c *redis.Client) error { return c.LPush(t.Context(), "sm:{x}:fence", "a").Err() },
	} {
		for kind, slots := range kinds {
			t.Run(what+" "+kind, func(t *testing.T) {
				c := teststore.Redis(t)
				b := redislease.New(c)
				first := acquire(t, b, claim("x", slots, "a"))
				require.NoError(t, c.Del(t.Context(), "sm:{x}:fence").Err())
				require.NoError(t, write(t, c))
				g := acquire(t, b, claim("x", slots, "a"))
				require.Greater(t, g.Fence, first.Fence)
				require.Less(t, g.Fence, time.Now().Add(time.Hour).UnixMicro())
				refreshed(t, b, hold(claim("x", slots, "a"), g), true)
				require.Greater(t, acquire(t, b, claim("x", slots, "a")).Fence, g.Fence)
			})
		}
	}
}

// TestR6_ForeignValue: a name's key that holds something of somebody else's is
// told as that, and left alone: neither busy nor of the other kind nor held.
func TestR6_ForeignValue(t *testing.T) {
	for what, write := range map[string]func(*testing.T, *redis.Client) error{
		"text":  func(t *testing.T, c *redis.Client) error { return c.Set(t.Context(), "sm:{x}", "what?", 0).Err() },
		"empty": func(t *testing.T, c *redis.Client) error { return c.Set(t.Context(), "sm:{x}", "", 0).Err() },
		"list":  func(t *testing.T, c *redis.Client) error { return c.LPush(t.Context(), "sm:{x}", "a").Err() },
	} {
		for kind, slots := range kinds {
			if what != "list" && slots > 0 {
				continue // a string is a lease to a semaphore
			}
			t.Run(what+" "+kind, func(t *testing.T) {
				c := teststore.Redis(t)
				b := redislease.New(c)
				require.NoError(t, write(t, c))
				before := c.Dump(t.Context(), "sm:{x}").Val()
				g, err := b.Acquire(t.Context(), claim("x", slots, "a"))
				require.ErrorContains(t, err, "redis: ERR sm:{x} holds neither a lease nor a semaphore: delete it")
				require.NotErrorIs(t, err, leases.ErrKind)
				require.Zero(t, g)
				refreshed(t, b, leases.Hold{Name: "x", Slots: slots, Owner: "a"}, false)
				released(t, b, leases.Hold{Name: "x", Slots: slots, Owner: "a"}, false)
				require.Equal(t, before, c.Dump(t.Context(), "sm:{x}").Val())
				require.NoError(t, c.Del(t.Context(), "sm:{x}").Err())
				acquire(t, b, claim("x", slots, "a"))
			})
		}
	}
}

// TestR7_PersistentLease: of a lease whose key somebody has made persistent
// nobody knows when it ends, and its holder's refresh lets it expire again.
func TestR7_PersistentLease(t *testing.T) {
	c := teststore.Redis(t)
	b := redislease.New(c)
	cl := claim("x", 0, "a")
	g := acquire(t, b, cl)
	require.NoError(t, c.Persist(t.Context(), "sm:{x}").Err())
	require.Equal(t, leases.Grant{}, busy(t, b, claim("x", 0, "b")))
	refreshed(t, b, hold(cl, g), true)
	require.Positive(t, busy(t, b, claim("x", 0, "b")).RetryAfter)
}

// TestR13_ManyHolders: more holders than the server keeps in a compact form,
// and than an acquire clears away at once when they have expired.
func TestR13_ManyHolders(t *testing.T) {
	const slots = 1000
	c := teststore.Redis(t)
	b := redislease.New(c)
	owner := func(i int) leases.Claim { return claim("x", slots, string(rune('一'+i))) }
	for i := range slots {
		acquire(t, b, owner(i))
	}
	busy(t, b, owner(slots))
	g := acquire(t, b, owner(7)) // again, without a second slot
	released(t, b, hold(owner(7), g), true)
	acquire(t, b, owner(slots))
	busy(t, b, owner(7))

	// As if the TTL of all of them had passed.
	members, err := c.ZRangeWithScores(t.Context(), "sm:{x}", 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, members, 2*slots)
	for i := range members {
		if members[i].Score > 0 {
			members[i].Score -= float64((2 * time.Minute).Microseconds())
		}
	}
	require.NoError(t, c.ZAdd(t.Context(), "sm:{x}", members...).Err())
	refreshed(t, b, leases.Hold{Name: "x", Slots: slots, Owner: owner(3).Owner}, false)
	released(t, b, leases.Hold{Name: "x", Slots: slots, Owner: owner(3).Owner}, false)
	cl := claim("x", 1, "one")
	g = acquire(t, b, cl)
	busy(t, b, claim("x", 1, "two"))
	released(t, b, hold(cl, g), true)
	for range 10 { // each clears away a hundred
		g = acquire(t, b, cl)
		released(t, b, hold(cl, g), true)
	}
	require.Zero(t, c.Exists(t.Context(), "sm:{x}").Val())
}
