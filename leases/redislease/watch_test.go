package redislease_test

import (
	"context"
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

// inLine has the ticket wait behind the holder of cl, and gives its turns.
func inLine(t *testing.T, b *redislease.Backend, cl leases.Claim, ticket string) <-chan struct{} {
	t.Helper()
	called := make(chan struct{}, 100)
	stop, err := b.WatchTurn(t.Context(), cl.Name, ticket, func() { called <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	for len(called) > 0 { // by the confirmation
		<-called
	}
	waits(t, b, cl, ticket)
	return called
}

func waits(t *testing.T, b *redislease.Backend, cl leases.Claim, ticket string) {
	t.Helper()
	cl.Owner = "waiter"
	g, err := b.AcquireInTurn(t.Context(), cl, ticket, false)
	require.NoError(t, err)
	require.False(t, g.Held)
}

// TestCase13_BrokenSubscription: the subscription's connection killed fifty
// times; each time waiting works again, and one connection is enough.
func TestCase13_BrokenSubscription(t *testing.T) {
	port := freePort(t) // a server of its own: it kills every subscription there
	startServer(t, t.TempDir(), port)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer c.Close()
	here, elsewhere := redislease.New(c), redislease.New(c)
	cl := claim("x", 0, "a")
	g := acquire(t, elsewhere, cl)
	called := inLine(t, here, cl, "ticket")
	for range 50 {
		n, err := c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Int()
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1, "one connection for all names")
		await(t, called, "the new subscription")
		for len(called) > 0 {
			<-called
		}
		waits(t, here, cl, "ticket")
		ok, err := elsewhere.Release(t.Context(), hold(cl, g))
		require.NoError(t, err)
		require.True(t, ok)
		await(t, called, "the turn after it")
		require.NoError(t, here.LeaveLine(t.Context(), cl.Name, "ticket"))
		g = acquire(t, elsewhere, cl)
		waits(t, here, cl, "ticket")
	}
}

// TestWatchUnreachable: an error in bounded time, also with ctx.
func TestWatchUnreachable(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t)})
	defer c.Close()
	b := redislease.New(c)
	_, err := b.WatchTurn(context.Background(), "x", "ticket", func() {})
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.WatchTurn(ctx, "x", "ticket", func() {})
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
