package redislease_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

const hang = time.Minute // a bound on a hang, not a measure

var kinds = map[string]int{"lease": 0, "semaphore": 2}

func claim(name string, slots int, owner string) leases.Claim {
	return leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: time.Minute}
}

func hold(c leases.Claim, g leases.Grant) leases.Hold {
	return leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner, Fence: g.Fence}
}

func acquire(t *testing.T, b leases.Backend, c leases.Claim) leases.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), c)
	require.NoError(t, err)
	require.True(t, g.Held)
	return g
}

// TestCase09_DeletedKeys: what an operator deletes is made anew, and the fence
// still grows.
func TestCase09_DeletedKeys(t *testing.T) {
	for kind, slots := range kinds {
		for _, deleted := range []string{"*", "*:fence", "*{x}"} {
			t.Run(kind+" "+deleted, func(t *testing.T) {
				c := teststore.Redis(t)
				b := redislease.New(c)
				first := acquire(t, b, claim("x", slots, "a"))
				keys, err := c.Keys(t.Context(), deleted).Result()
				require.NoError(t, err)
				require.NotEmpty(t, keys)
				require.NoError(t, c.Del(t.Context(), keys...).Err())
				again := acquire(t, b, claim("x", slots, "a"))
				require.Greater(t, again.Fence, first.Fence)
				ok, err := b.Release(t.Context(), hold(claim("x", slots, "a"), again))
				require.NoError(t, err)
				require.True(t, ok)
			})
		}
	}
}

// TestR5_FlushedServer: the fence grows over the loss of all data.
func TestR5_FlushedServer(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := teststore.Redis(t)
			b := redislease.New(c)
			last := int64(0)
			for range 20 {
				g := acquire(t, b, claim("x", slots, "a"))
				require.Greater(t, g.Fence, last)
				last = g.Fence
				require.NoError(t, c.FlushDB(t.Context()).Err())
			}
		})
	}
}

// TestR5_ClockSetBack: a fence that is ahead of the clock is gone past by one.
func TestR5_ClockSetBack(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := teststore.Redis(t)
			b := redislease.New(c)
			ahead := time.Now().Add(time.Hour).UnixMicro()
			require.NoError(t, c.Set(t.Context(), "sm:{x}:fence", ahead, 0).Err())
			require.Equal(t, ahead+1, acquire(t, b, claim("x", slots, "a")).Fence)
			require.Equal(t, ahead+2, acquire(t, b, claim("x", slots, "a")).Fence)
			// The hold itself knows, when the fence's key is lost.
			require.NoError(t, c.Del(t.Context(), "sm:{x}:fence").Err())
			require.Equal(t, ahead+3, acquire(t, b, claim("x", slots, "a")).Fence)
		})
	}
}

// TestKeysExpire: nothing of a name stays for ever.
func TestKeysExpire(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := teststore.Redis(t)
			b := redislease.New(c, redislease.Prefix("app:"))
			cl := claim("x", slots, "a")
			g := acquire(t, b, cl)
			check := func(when string) {
				keys, err := c.Keys(t.Context(), "*").Result()
				require.NoError(t, err)
				require.NotEmpty(t, keys)
				for _, k := range keys {
					require.True(t, strings.HasPrefix(k, "app:{x}"), k)
					require.Positive(t, c.PTTL(t.Context(), k).Val(), "%s %s", when, k)
				}
			}
			check("held")
			ok, err := b.Release(t.Context(), hold(cl, g))
			require.NoError(t, err)
			require.True(t, ok)
			check("released")
			require.EqualValues(t, 2, c.DBSize(t.Context()).Val(), "only the fence stays, and for a while the call")
		})
	}
}

// TestCase17_BlackHole: a server that takes the request and never answers, and
// a client that would wait for ever.
func TestCase17_BlackHole(t *testing.T) {
	t.Parallel() // mostly waits
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	patient := redis.NewClient(&redis.Options{Addr: l.Addr().String(), ReadTimeout: -1, WriteTimeout: -1})
	defer patient.Close()
	b, byDefault := redislease.New(patient, redislease.Timeout(300*time.Millisecond)), redislease.New(patient)
	inTime := func(do func() error) error {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- do() }()
		select {
		case err := <-ended:
			require.NotErrorIs(t, err, leases.ErrNotAcquired)
			return err
		case <-time.After(hang):
			require.FailNow(t, "it does not end")
			return nil
		}
	}
	h := leases.Hold{Name: "x", Owner: "a"}
	for name, do := range map[string]func(*redislease.Backend, context.Context) error{
		"acquire": func(b *redislease.Backend, ctx context.Context) error {
			_, err := b.Acquire(ctx, claim("x", 0, "a"))
			return err
		},
		"refresh": func(b *redislease.Backend, ctx context.Context) error {
			_, err := b.Refresh(ctx, h, time.Second)
			return err
		},
		"release": func(b *redislease.Backend, ctx context.Context) error {
			_, err := b.Release(ctx, h)
			return err
		},
	} {
		err := inTime(func() error { return do(b, context.Background()) })
		require.ErrorContains(t, err, "redis: no answer for 300ms", name)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		require.ErrorIs(t, inTime(func() error { return do(byDefault, ctx) }), context.Canceled, name)
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, inTime(func() error { return do(byDefault, ctx) }), context.DeadlineExceeded, name)
		cancel()
	}
	err = inTime(func() error {
		return leases.Lease("x", time.Minute, leases.On(byDefault)).Acquire(context.Background())
	})
	require.ErrorContains(t, err, "redis: no answer for 5s")
}

// TestCase19_NoScript: a flushed script cache is not noticed.
func TestCase19_NoScript(t *testing.T) {
	c := teststore.Redis(t)
	b := redislease.New(c)
	for _, slots := range kinds {
		cl := claim(fmt.Sprint("x", slots), slots, "a")
		flush := func() { require.NoError(t, c.ScriptFlush(t.Context()).Err()) }
		flush()
		g := acquire(t, b, cl)
		flush()
		ok, err := b.Refresh(t.Context(), hold(cl, g), time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		flush()
		ok, err = b.Release(t.Context(), hold(cl, g))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// TestCase19_Restart: a restarted server, which has lost its data too, is used
// as before.
func TestCase19_Restart(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	stop := startServer(t, dir, port)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer c.Close()
	b := redislease.New(c)
	g := acquire(t, b, claim("x", 0, "a"))
	stop()
	_, err := b.Acquire(t.Context(), claim("x", 0, "a"))
	require.ErrorContains(t, err, "redis: ")
	startServer(t, dir, port)
	again := acquire(t, b, claim("x", 0, "b")) // granted twice: the server lost the first
	require.Greater(t, again.Fence, g.Fence, "and the fence tells")
	ok, err := b.Refresh(t.Context(), hold(claim("x", 0, "a"), g), time.Minute)
	require.NoError(t, err)
	require.False(t, ok)
}

// TestCase24_Eviction: a server that evicts keys takes holds away early, and
// nothing else.
func TestCase24_Eviction(t *testing.T) {
	port := freePort(t)
	startServer(t, t.TempDir(), port, "--maxmemory-policy", "allkeys-random", "--maxmemory", "3mb")
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer c.Close()
	b := redislease.New(c)
	fences := map[string]int64{}
	for i := range 3000 {
		for _, name := range []string{fmt.Sprint("x", i%100), fmt.Sprint("filler", i)} {
			for _, slots := range []int{0, 1000} {
				cl := claim(fmt.Sprint(name, "/", slots), slots, "an owner token that fills some memory")
				g := acquire(t, b, cl)
				require.Greater(t, g.Fence, fences[cl.Name])
				fences[cl.Name] = g.Fence
			}
		}
	}
	info, err := c.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	require.NotContains(t, info, "evicted_keys:0\r", "nothing was evicted: the test shows nothing")
}

// TestR11_New: what New can't use is told by every operation. A prefix with
// braces would move the hash tag.
func TestR11_New(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	for want, b := range map[string]*redislease.Backend{
		`prefix must be without { and }, got "{app}:"`: redislease.New(c, redislease.Prefix("{app}:")),
		`prefix must be without { and }, got "}"`:      redislease.New(c, redislease.Prefix("}")),
		"client must be a client, got nil":             redislease.New(nil),
	} {
		_, acquire := b.Acquire(t.Context(), claim("x", 0, "a"))
		_, refresh := b.Refresh(t.Context(), leases.Hold{Name: "x", Owner: "a"}, time.Second)
		_, release := b.Release(t.Context(), leases.Hold{Name: "x", Owner: "a"})
		_, watch := b.WatchTurn(t.Context(), "x", "ticket", func() {})
		for _, err := range []error{acquire, refresh, release, watch} {
			require.ErrorIs(t, err, leases.ErrInvalid)
			require.ErrorContains(t, err, want)
		}
	}
	b := redislease.New(c, redislease.Prefix("{"), redislease.Prefix("a:"), nil)
	_, err := b.Release(t.Context(), leases.Hold{Name: "x"})
	require.ErrorContains(t, err, "owner must be", "the later option counts")
}

// TestPrefixKeepsApart two applications on one server.
func TestPrefixKeepsApart(t *testing.T) {
	c := teststore.Redis(t)
	acquire(t, redislease.New(c, redislease.Prefix("a:")), claim("x", 0, "a"))
	acquire(t, redislease.New(c, redislease.Prefix("b:")), claim("x", 0, "b"))
}
