package redislease_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases/redislease"
)

// dialing is a client of c's server whose connections dial makes.
func dialing(t *testing.T, c *redis.Client, dial func(addr string) (net.Conn, error)) *redis.Client {
	opts := *c.Options()
	opts.Dialer = func(_ context.Context, _, addr string) (net.Conn, error) { return dial(addr) }
	opts.ReadTimeout = -1 // it waits for ever
	opts.PoolSize = 100
	made := redis.NewClient(&opts)
	t.Cleanup(func() { made.Close() })
	return made
}

// TestCallsShareRoundTrips: a thousand callers at once use a few connections,
// also when the server has lost its scripts, and each gets its own answer.
func TestCallsShareRoundTrips(t *testing.T) {
	var dials atomic.Int64
	c := dialing(t, teststore.Redis(t), func(addr string) (net.Conn, error) {
		dials.Add(1)
		return net.Dial("tcp", addr)
	})
	b := redislease.New(c, redislease.Timeout(hang))
	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	for kind, slots := range kinds {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				cl := claim(fmt.Sprint(kind, i), slots, "a")
				g, err := b.Acquire(t.Context(), cl)
				if err != nil || !g.Held {
					t.Errorf("acquire: %v %v", g, err)
				}
				ok, err := b.Refresh(t.Context(), hold(cl, g), time.Minute)
				if err != nil || !ok {
					t.Errorf("refresh: %v %v", ok, err)
				}
				if i%2 == 0 {
					cl.Owner = "b"
				}
				ok, err = b.Release(t.Context(), hold(cl, g))
				if err != nil || ok != (i%2 == 1) {
					t.Errorf("release: %v %v", ok, err)
				}
			})
		}
		all.Wait()
	}
	require.Less(t, dials.Load(), int64(100))
}

// TestCallsDontWaitForOneThatHangs: connections that never answer hold up the
// calls that are on them, and no others.
func TestCallsDontWaitForOneThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	const hanging = 2 * 4 // twice the lanes
	var dials atomic.Int64
	c := dialing(t, teststore.Redis(t), func(addr string) (net.Conn, error) {
		if dials.Add(1) <= hanging {
			addr = silent.Addr().String()
		}
		return net.Dial("tcp", addr)
	})
	b := redislease.New(c, redislease.Timeout(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range hanging {
		go b.Acquire(ctx, claim(fmt.Sprint("hangs", i), 0, "a"))
		require.Eventually(t, func() bool { return dials.Load() > int64(i) }, hang, time.Millisecond)
	}
	for i := range 10 {
		answered := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, claim(fmt.Sprint("x", i), 0, "a"))
			answered <- err
		}()
		select {
		case err := <-answered:
			require.NoError(t, err)
		case <-time.After(hang):
			t.Fatal("no answer")
		}
	}
}

// TestR6_WhatNobodyWaitsForIsNotSent: a call whose ctx has ended while it
// waited for a connection acquires nothing.
func TestR6_WhatNobodyWaitsForIsNotSent(t *testing.T) {
	c := teststore.Redis(t)
	var open atomic.Bool
	may := make(chan struct{})
	slow := dialing(t, c, func(addr string) (net.Conn, error) {
		if !open.Load() {
			<-may
		}
		return net.Dial("tcp", addr)
	})
	b := redislease.New(slow, redislease.Timeout(hang))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if _, err := b.Acquire(ctx, claim(fmt.Sprint("left", i), 0, "a")); err == nil {
				t.Error("acquired without a connection")
			}
		})
	}
	cancel()
	all.Wait()
	open.Store(true)
	close(may)
	acquire(t, b, claim("x", 0, "a"))
	keys, err := c.Keys(t.Context(), "sm:{left*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}
