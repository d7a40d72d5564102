package leases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// elsewhere is a store in which another process holds x. It releases at a point
// of the script: of an attempt, or of the watch.
type elsewhere struct {
	Backend
	at      string        // the point
	attempt int           // of which attempt; 0: any
	watches time.Duration // how long it takes to begin to watch

	mu   sync.Mutex
	seen int       // attempts
	done time.Time // of the release
	wake func()    // nil while nobody listens
}

const otherProcess = "another process"

func newElsewhere(t *testing.T, at string, attempt int) *elsewhere {
	b := &elsewhere{Backend: NewInProcess(), at: at, attempt: attempt, watches: time.Millisecond}
	_, err := b.Backend.Acquire(t.Context(), Claim{Name: "x", Owner: otherProcess, TTL: time.Hour})
	require.NoError(t, err)
	return b
}

// reach is called at each point; at its own the release comes, and is told to
// whoever listens.
func (b *elsewhere) reach(point string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if point != b.at || b.attempt > 0 && b.seen != b.attempt || !b.done.IsZero() {
		return
	}
	ok, err := b.Backend.Release(context.Background(), Hold{Name: "x", Owner: otherProcess})
	if err != nil || !ok {
		panic(fmt.Sprint(ok, err))
	}
	b.done = time.Now()
	if b.wake != nil {
		b.wake()
	}
}

func (b *elsewhere) Acquire(ctx context.Context, c Claim) (Grant, error) {
	b.mu.Lock()
	b.seen++
	b.mu.Unlock()
	b.reach("before the attempt is applied")
	g, err := b.Backend.Acquire(ctx, c)
	b.reach("before its answer is sent")
	time.Sleep(time.Millisecond)
	b.reach("as its answer arrives")
	go func() {
		time.Sleep(time.Microsecond)
		b.reach("just after its answer")
	}()
	return g, err
}

func (b *elsewhere) Watch(ctx context.Context, _ string, wake func()) (func(), error) {
	b.reach("before the watch")
	time.Sleep(b.watches)
	b.reach("before the watch has begun")
	b.listen(wake)
	b.reach("as the watch has begun")
	return func() { b.listen(nil) }, nil
}

func (b *elsewhere) listen(wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake = wake
}

func (b *elsewhere) releasedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// TestR7_NoWakeUpIsLost: wherever in an attempt the release comes, the waiter
// has the lease as soon as the store can have answered, and does not sit out
// its back-off.
func TestR7_NoWakeUpIsLost(t *testing.T) {
	attempts := []int{1, 2, 3, 4, 5, 20} // by the last the pauses are long
	for at, attempts := range map[string][]int{
		"before the attempt is applied": attempts,
		"before its answer is sent":     attempts,
		"as its answer arrives":         attempts,
		"just after its answer":         attempts,
		"before the watch":              {0},
		"before the watch has begun":    {0},
		"as the watch has begun":        {0},
	} {
		for _, attempt := range attempts {
			for _, waiters := range []int{1, 3} {
				t.Run(fmt.Sprint(attempt, " ", at, " ", waiters), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := newElsewhere(t, at, attempt)
						if at == "before the watch has begun" {
							b.watches = 10 * time.Second // by then the pauses are long
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						got := make(chan time.Time, waiters)
						for range waiters {
							go func() {
								h := Lease("x", time.Hour, On(b))
								if err := h.Acquire(ctx); err != nil {
									return // nothing was released: no such point
								}
								got <- time.Now()
								if err := h.Release(context.WithoutCancel(ctx)); err != nil {
									t.Error(err)
								}
							}()
						}
						select {
						case at := <-got:
							// An attempt under way, and the one after it; or the watch.
							require.LessOrEqual(t, at.Sub(b.releasedAt()), 4*time.Millisecond)
						case <-ctx.Done():
							require.Zero(t, b.releasedAt(), "released, but not acquired for a minute")
						}
						cancel()
						time.Sleep(time.Minute) // everybody leaves
					})
				})
			}
		}
	}
}

// TestR7_WaitIsKeptWhileTheWatchBegins: a store that is slow to listen holds
// up neither the end of the wait nor a wake-up by this process.
func TestR7_WaitIsKeptWhileTheWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newElsewhere(t, "never", 0)
		b.watches = time.Hour
		began := time.Now()
		err := Lease("x", time.Hour, On(b), Wait(50*time.Millisecond)).Acquire(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		require.LessOrEqual(t, time.Since(began), 52*time.Millisecond)

		here := Lease("y", time.Hour, On(b))
		require.NoError(t, here.Acquire(t.Context()))
		got := make(chan time.Time)
		go func() {
			if err := Lease("y", time.Hour, On(b)).Acquire(t.Context()); err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		time.Sleep(time.Minute)
		released := time.Now()
		require.NoError(t, here.Release(t.Context()))
		require.LessOrEqual(t, (<-got).Sub(released), 2*time.Millisecond)
		time.Sleep(2 * time.Hour) // the watch begins, and ends with the line
	})
}

// failing is a Waker that can't listen for a while.
type failing struct {
	*elsewhere
	fails int
	tried int
}

func (b *failing) Watch(ctx context.Context, name string, wake func()) (func(), error) {
	if b.tried++; b.tried <= b.fails {
		return nil, fmt.Errorf("no connection")
	}
	return b.elsewhere.Watch(ctx, name, wake)
}

// TestR7_TheWatchIsTriedAgain, so that a store that could not be listened to
// for a while wakes waiters again.
func TestR7_TheWatchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &failing{elsewhere: newElsewhere(t, "never", 0), fails: 5}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- Lease("x", time.Hour, On(b)).Acquire(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, b.fails+1, b.tried)
		require.NotNil(t, b.wake)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		synctest.Wait()
		require.Nil(t, b.wake, "stopped with the line")
	})
}
