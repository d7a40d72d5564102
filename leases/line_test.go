package leases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counted counts the attempts that reach a backend.
type counted struct {
	Backend
	mu       sync.Mutex
	attempts int
}

func (c *counted) Acquire(ctx context.Context, claim Claim) (Grant, error) {
	c.mu.Lock()
	c.attempts++
	c.mu.Unlock()
	return c.Backend.Acquire(ctx, claim)
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts
}

// TestR7_OnlyTheFirstInLineAsks: a thousand waiters cost what one does.
func TestR7_OnlyTheFirstInLineAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: NewInProcess()}
		holder := Lease("x", time.Hour, On(b))
		require.NoError(t, holder.Acquire(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 1000 {
			done.Go(func() {
				err := Lease("x", time.Hour, On(b)).Acquire(ctx)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotAcquired) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(2 * time.Second) // the first pauses are shorter
		before := b.count()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, b.count()-before, 50, "attempts in ten seconds")
		before = b.count()
		cancel()
		done.Wait()
		require.LessOrEqual(t, b.count()-before, 1, "waiters that leave don't ask")
	})
}

// TestR7_FirstComeFirstServed: nobody overtakes inside a process.
func TestR7_FirstComeFirstServed(t *testing.T) {
	for _, slots := range []int{0, 3} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handle := func(b Backend) *Handle {
					if slots == 0 {
						return Lease("x", time.Hour, On(b))
					}
					return Semaphore("x", slots, time.Hour, On(b))
				}
				b := NewInProcess()
				var holders []*Handle
				for range max(slots, 1) {
					h := handle(b)
					require.NoError(t, h.Acquire(t.Context()))
					holders = append(holders, h)
				}
				const waiters = 20
				order := make(chan int, waiters)
				for i := range waiters {
					go func() {
						h := handle(b)
						if err := h.Acquire(t.Context()); err != nil {
							t.Error(err)
						}
						order <- i
						time.Sleep(time.Millisecond)
						if err := h.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}()
					synctest.Wait() // it is in line before the next one comes
				}
				for _, h := range holders {
					require.NoError(t, h.Release(t.Context()))
					synctest.Wait()
				}
				for i := range waiters {
					require.Equal(t, i, <-order)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestR7_ReleaseWakesAtOnce: the back-off plays no part inside a process.
func TestR7_ReleaseWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInProcess()
		holder := Lease("x", time.Hour, On(b))
		require.NoError(t, holder.Acquire(t.Context()))
		got := make(chan time.Time)
		go func() {
			h := Lease("x", time.Hour, On(b))
			if err := h.Acquire(t.Context()); err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		time.Sleep(time.Minute + 123*time.Microsecond)
		released := time.Now()
		require.NoError(t, holder.Release(t.Context()))
		require.Zero(t, (<-got).Sub(released))
	})
}

// TestR7_AWaiterThatLeavesPassesItsWakeUpOn, and its place in line.
func TestR7_AWaiterThatLeavesPassesItsWakeUpOn(t *testing.T) {
	b := NewInProcess()
	first, second := joinLine(b, "x", 0, false), joinLine(b, "x", 0, false)
	defer second.leave()
	wakeLines(b, "x")
	select {
	case <-second.first:
		t.Fatal("the second must not ask before the first has left")
	default:
	}
	first.leave()
	select {
	case <-second.first:
	default:
		t.Fatal("the second is the asker now")
	}
	select {
	case <-second.woken:
	default:
		t.Fatal("the wake-up was lost")
	}
}

// hints is a backend whose releases elsewhere are told by hand.
type hints struct {
	counted
	wake  func()
	fails error
	stops int
}

func (b *hints) Watch(_ context.Context, _ string, wake func()) (func(), error) {
	if b.fails != nil {
		return nil, b.fails
	}
	b.wake = wake
	return func() { b.stops++ }, nil
}

// TestR7_WatchIsOneForALine and ends with it; a hint leads to an attempt.
func TestR7_WatchIsOneForALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hints{counted: counted{Backend: NewInProcess()}}
		elsewhere := Claim{Name: "x", Owner: "another process", TTL: time.Hour}
		_, err := b.Backend.Acquire(t.Context(), elsewhere)
		require.NoError(t, err)
		got := make(chan *Handle, 2)
		for range 2 {
			go func() {
				h := Lease("x", time.Hour, On(b))
				if err := h.Acquire(t.Context()); err != nil {
					t.Error(err)
				}
				got <- h
			}()
		}
		time.Sleep(time.Minute)
		ok, err := b.Backend.Release(t.Context(), Hold{Name: "x", Owner: elsewhere.Owner})
		require.NoError(t, err)
		require.True(t, ok)
		told := time.Now()
		b.wake()
		h := <-got
		require.Zero(t, time.Since(told))
		require.NoError(t, h.Release(t.Context()))
		h = <-got
		require.NoError(t, h.Release(t.Context()))
		synctest.Wait()
		require.Equal(t, 1, b.stops)
		b.wake() // late: nobody is in line
	})
}

// TestCase12_LostWakeUp: the back-off bounds what a lost notification costs,
// also when none can be asked for.
func TestCase12_LostWakeUp(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no LISTEN here")} {
		synctest.Test(t, func(t *testing.T) {
			b := &hints{counted: counted{Backend: NewInProcess()}, fails: fails}
			elsewhere := Claim{Name: "x", Owner: "another process", TTL: time.Hour}
			_, err := b.Backend.Acquire(t.Context(), elsewhere)
			require.NoError(t, err)
			got := make(chan time.Time)
			go func() {
				if err := Lease("x", time.Second, On(b)).Acquire(t.Context()); err != nil {
					t.Error(err)
				}
				got <- time.Now()
			}()
			time.Sleep(time.Minute)
			_, err = b.Backend.Release(t.Context(), Hold{Name: "x", Owner: elsewhere.Owner})
			require.NoError(t, err)
			released := time.Now()
			require.LessOrEqual(t, (<-got).Sub(released), lastPause)
		})
	}
}

// TestR13_SlotCountsWaitInLinesOfTheirOwn: who asks for more slots does not
// stand behind one who can't be served.
func TestR13_SlotCountsWaitInLinesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewInProcess()
		require.NoError(t, Semaphore("x", 1, time.Hour, On(b)).Acquire(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go Semaphore("x", 1, time.Hour, On(b)).Acquire(ctx)
		synctest.Wait()
		require.NoError(t, Semaphore("x", 2, time.Hour, On(b)).Acquire(t.Context()))
	})
}
