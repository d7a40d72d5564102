package pglease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
)

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("not in time: " + what)
	}
}

func drain(c <-chan struct{}) {
	for len(c) > 0 {
		<-c
	}
}

// watch gives the wake-ups of a name.
func watch(t *testing.T, b *pglease.Backend, name string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 1000)
	stop, err := b.Watch(t.Context(), name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	drain(woken) // by the confirmation
	return woken
}

func grantAndRelease(t *testing.T, b leases.Backend, name string, slots int) {
	t.Helper()
	g, err := b.Acquire(t.Context(), leases.Claim{Name: name, Slots: slots, Owner: "a", TTL: time.Minute})
	require.NoError(t, err)
	require.True(t, g.Held)
	ok, err := b.Release(t.Context(), leases.Hold{Name: name, Slots: slots, Owner: "a", Fence: g.Fence})
	require.NoError(t, err)
	require.True(t, ok)
}

// TestR7_HearsOfReleasesElsewhere: each kind of release on another connection
// wakes the name's waiters.
func TestR7_HearsOfReleasesElsewhere(t *testing.T) {
	pool := newPool(t)
	here, elsewhere := pglease.New(pool), pglease.New(pool)
	for name, slots := range map[string]int{"lease": 0, "semaphore": 2} {
		woken := watch(t, here, name)
		for range 3 {
			grantAndRelease(t, elsewhere, name, slots)
			await(t, woken, "the wake-up")
		}
	}
}

// TestReleaseNotifiesOnlyWaiters: without one a release costs one statement.
func TestReleaseNotifiesOnlyWaiters(t *testing.T) {
	pool := newPool(t)
	b := pglease.New(pool)
	woken := watch(t, b, "waited for")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "LISTEN sm_lease")
	require.NoError(t, err)
	grantAndRelease(t, b, "nobody waits for", 0)
	grantAndRelease(t, b, "waited for", 0)
	n, err := conn.Conn().WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "waited for", n.Payload, "the first notification is of the second release")
	await(t, woken, "the wake-up")
}

// TestWatchStops: a name that nobody waits for any more is not notified.
func TestWatchStops(t *testing.T) {
	pool := newPool(t)
	b := pglease.New(pool)
	other := watch(t, b, "other")
	for range 3 { // marks of a session count
		stop, err := b.Watch(t.Context(), "x", func() {})
		require.NoError(t, err)
		again, err := b.Watch(t.Context(), "x", func() {})
		require.NoError(t, err)
		stop()
		again()
	}
	require.Eventually(t, func() bool {
		var marks int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&marks)
		require.NoError(t, err)
		return marks == 1
	}, time.Minute, 10*time.Millisecond, "the mark of the other name")
	grantAndRelease(t, b, "other", 0)
	await(t, other, "the wake-up")
}

// TestCase13_BrokenSubscription: the listening connection killed fifty times;
// each time waiting works again, and one connection is enough.
func TestCase13_BrokenSubscription(t *testing.T) {
	pool := newPool(t)
	here, elsewhere := pglease.New(pool), pglease.New(pool)
	woken := watch(t, here, "x")
	for range 50 {
		var killed int
		require.NoError(t, pool.QueryRow(t.Context(), `
			SELECT count(pg_terminate_backend(pid)) FROM pg_locks
			WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&killed))
		require.Equal(t, 1, killed, "one connection for all names")
		await(t, woken, "the new subscription")
		drain(woken)
		grantAndRelease(t, elsewhere, "x", 0)
		await(t, woken, "the release after it")
	}
}

// TestCase05_NoLostWakeUp: whenever the release comes, the waiter has the lease
// soon after, and not only at its next look.
func TestCase05_NoLostWakeUp(t *testing.T) {
	pool := newPool(t)
	here, elsewhere := pglease.New(pool), pglease.New(pool)
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
