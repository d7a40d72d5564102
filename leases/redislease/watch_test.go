package redislease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hang):
		t.Fatal("not in time: " + what)
	}
}

// watch gives the wake-ups of a name.
func watch(t *testing.T, b *redislease.Backend, name string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 100)
	stop, err := b.Watch(t.Context(), name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	for len(woken) > 0 { // by the confirmation
		<-woken
	}
	return woken
}

// TestR7_HearsOfReleasesElsewhere: each kind of release on another connection
// wakes the name's waiters.
func TestR7_HearsOfReleasesElsewhere(t *testing.T) {
	c := teststore.Redis(t)
	here, elsewhere := redislease.New(c), redislease.New(c)
	for kind, slots := range kinds {
		cl := claim(kind+"{}", slots, "a")
		woken := watch(t, here, cl.Name)
		for range 3 {
			g := acquire(t, elsewhere, cl)
			ok, err := elsewhere.Release(t.Context(), hold(cl, g))
			require.NoError(t, err)
			require.True(t, ok)
			await(t, woken, "the wake-up")
		}
	}
}

// TestCase13_BrokenSubscription: the subscription's connection killed fifty
// times; each time waiting works again, and one connection is enough.
func TestCase13_BrokenSubscription(t *testing.T) {
	port := freePort(t) // a server of its own: it kills every subscription there
	startServer(t, t.TempDir(), port)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer c.Close()
	here, elsewhere := redislease.New(c), redislease.New(c)
	woken := watch(t, here, "x")
	cl := claim("x", 0, "a")
	for range 50 {
		n, err := c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Int()
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1, "one connection for all names")
		await(t, woken, "the new subscription")
		for len(woken) > 0 {
			<-woken
		}
		g := acquire(t, elsewhere, cl)
		ok, err := elsewhere.Release(t.Context(), hold(cl, g))
		require.NoError(t, err)
		require.True(t, ok)
		await(t, woken, "the release after it")
	}
}

// TestWatchStops: who has stopped is not woken, and the other one is.
func TestWatchStops(t *testing.T) {
	b := redislease.New(teststore.Redis(t))
	var stopped atomic.Bool
	stop, err := b.Watch(t.Context(), "x", func() {
		if stopped.Load() {
			t.Error("woken after stop")
		}
	})
	require.NoError(t, err)
	first := watch(t, b, "x")
	stop()
	stop()
	stopped.Store(true)
	again := watch(t, b, "x")
	cl := claim("x", 0, "a")
	g := acquire(t, b, cl)
	_, err = b.Release(t.Context(), hold(cl, g))
	require.NoError(t, err)
	await(t, first, "the wake-up")
	await(t, again, "the wake-up")
}

// TestWatchUnreachable: an error in bounded time, also with ctx.
func TestWatchUnreachable(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t)})
	defer c.Close()
	b := redislease.New(c)
	_, err := b.Watch(context.Background(), "x", func() {})
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Watch(ctx, "x", func() {})
	require.ErrorIs(t, err, context.Canceled)
}

// TestCase05_NoLostWakeUp: whenever the release comes, the waiter has the lease
// soon after, and not only at its next look.
func TestCase05_NoLostWakeUp(t *testing.T) {
	c := teststore.Redis(t)
	here, elsewhere := redislease.New(c), redislease.New(c)
	var slow int
	for i := range 100 {
		holder := leases.Lease("x", time.Minute, leases.On(elsewhere))
		require.NoError(t, holder.Acquire(t.Context()))
		released := make(chan time.Time, 1)
		time.AfterFunc(time.Duration(i)*100*time.Microsecond, func() {
			if err := holder.Release(context.Background()); err != nil {
				t.Error(err)
			}
			released <- time.Now()
		})
		waiter := leases.Lease("x", time.Minute, leases.On(here))
		require.NoError(t, waiter.Acquire(t.Context()))
		if time.Since(<-released) > 50*time.Millisecond {
			slow++
		}
		require.NoError(t, waiter.Release(t.Context()))
	}
	require.LessOrEqual(t, slow, 10, "of 100 hand-offs, slower than 50 ms")
}
