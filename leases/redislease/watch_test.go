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

// TestCase05_NoLostWakeUp: the release wakes a waiter whose back-off has grown
// long, and not only one that would have looked soon anyway.
func TestCase05_NoLostWakeUp(t *testing.T) {
	c := teststore.Redis(t)
	here, elsewhere := redislease.New(c), redislease.New(c)
	cl := claim("x", 0, "a")
	for range 100 {
		g := acquire(t, elsewhere, cl)
		called := inLine(t, here, cl, "ticket")
		ok, err := elsewhere.Release(t.Context(), hold(cl, g))
		require.NoError(t, err)
		require.True(t, ok)
		await(t, called, "the turn")
		require.NoError(t, here.LeaveLine(t.Context(), cl.Name, "ticket"))
	}
}

// TestR7_ProcessesTakeTurns: processes are served in the order in which they
// came, before who comes later; who has left or died is passed over.
func TestR7_ProcessesTakeTurns(t *testing.T) {
	c := teststore.Redis(t)
	holder := leases.Lease("x", time.Minute, leases.On(redislease.New(c)))
	require.NoError(t, holder.Acquire(t.Context()))
	inStore := func(n int64) {
		require.Eventually(t, func() bool { return c.ZCard(t.Context(), "sm:{x}:line").Val() == n }, hang, time.Millisecond)
	}
	served := make(chan string, 100)
	waits := func(ctx context.Context, b *redislease.Backend, who string) {
		h := leases.Lease("x", time.Minute, leases.On(b))
		if err := h.Acquire(ctx); err != nil {
			served <- who + " left"
			return
		}
		served <- who
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
	var processes []*redislease.Backend
	for i := range 4 {
		processes = append(processes, redislease.New(c))
		if i == 1 { // one that leaves again
			ctx, cancel := context.WithCancel(t.Context())
			go waits(ctx, processes[1], "b")
			inStore(2)
			cancel()
			require.Equal(t, "b left", <-served)
			inStore(1)
			continue
		}
		go waits(t.Context(), processes[i], string(rune('a'+i))+"1")
		inStore(int64(len(processes) - min(i, 1)))
	}
	for i, who := range map[int]string{0: "a2", 2: "c2", 3: "d2"} {
		go waits(t.Context(), processes[i], who)
	}
	require.NoError(t, c.ZAdd(t.Context(), "sm:{x}:line", redis.Z{Score: 1, Member: "of a process that died"}).Err())
	require.NoError(t, holder.Release(t.Context()))
	var order []string
	for range 6 {
		order = append(order, <-served)
	}
	require.Equal(t, []string{"a1", "c1", "d1"}, order[:3])
	require.ElementsMatch(t, []string{"a2", "c2", "d2"}, order[3:])
	inStore(0)
	require.NoError(t, holder.Acquire(t.Context()), "nobody is in line")
}
