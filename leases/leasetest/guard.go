package leasetest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func guard(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		t.Run("counts_from_before_the_request", func(t *testing.T) {
			ctx, f := bounded(t), newFaulty(s.Backend)
			f.replyLag = 50 * time.Millisecond
			h := store{f}.handle(newName(), slots, long)
			require.Zero(t, h.Deadline(), "R8: not held")
			require.NoError(t, h.Acquire(ctx))
			require.False(t, h.Deadline().After(f.calls(acquiring)[0].began.Add(long)), "R8: Deadline is counted from before the request was sent")
			require.NoError(t, h.Refresh(ctx))
			require.False(t, h.Deadline().After(f.calls(refreshing)[0].began.Add(long)), "R8: and so it is after a Refresh")
			require.NoError(t, h.Release(ctx))
			require.Zero(t, h.Deadline(), "R8: not held")
		})
		t.Run("ends_ctx_at_the_deadline", func(t *testing.T) { endsAtTheDeadline(t, s, slots) })
		t.Run("a_refresh_moves_it", func(t *testing.T) { aRefreshMovesIt(t, s, slots) })
	})
}

func endsAtTheDeadline(t *testing.T, s store, slots int) {
	inTime(t, short, func(ttl time.Duration) bool {
		name, began := newName(), time.Now()
		h, ran := s.handle(name, slots, ttl), false
		err := h.Do(bounded(t), func(ctx context.Context) error {
			ran = true
			deadline := h.Deadline() // zero when it has passed already
			select {
			case <-ctx.Done():
			case <-time.After(soon):
				require.Fail(t, "R8: the ctx inside Do ends at the deadline")
			}
			require.False(t, time.Now().Before(deadline), "R8: not before the deadline")
			require.ErrorIs(t, context.Cause(ctx), leases.ErrLost, "R8: the cause is ErrLost")
			return nil
		})
		if !ran && time.Since(began) >= ttl {
			return false
		}
		require.ErrorIs(t, err, leases.ErrLost, "R9: Do says that the hold was lost")
		s.becomesFree(t, "R8", name, slots)
		return true
	})
}

func aRefreshMovesIt(t *testing.T, s store, slots int) {
	errLate := errors.New("the TTL may have passed before the refresh")
	inTime(t, short, func(ttl time.Duration) bool {
		h, began := s.handle(newName(), slots, ttl), time.Now()
		err := h.Do(bounded(t), func(ctx context.Context) error {
			if err := h.RefreshFor(ctx, long); err != nil {
				if time.Since(began) >= ttl {
					return errLate
				}
				return err
			}
			time.Sleep(time.Until(began.Add(ttl + coarse)))
			return ctx.Err()
		})
		if errors.Is(err, errLate) || h.Fence() == 0 && time.Since(began) >= ttl {
			return false
		}
		require.NoError(t, err, "R8: a Refresh moves the moment at which ctx ends")
		return true
	})
}

func do(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		name, ctx := newName(), bounded(t)
		// free acquires what Do must have released, at the first attempt.
		free := func(after string) {
			t.Helper()
			h := s.hold(t, "R9: released on "+after, leases.Claim{Name: name, Slots: slots, Owner: "probe", TTL: long})
			s.released(t, "R9", h.Hold)
		}
		h := s.handle(name, slots, long)

		require.NoError(t, h.Do(ctx, func(ctx context.Context) error {
			s.busy(t, "R9", leases.Claim{Name: name, Slots: slots, Owner: "probe", TTL: long})
			inner, ok := leases.FromContext(ctx)
			require.True(t, ok, "R9: the ctx inside Do carries the handle")
			require.Same(t, h, inner, "R9: the ctx inside Do carries the handle")
			return nil
		}))
		free("return")

		failure := errors.New("the work failed")
		err := h.Do(ctx, func(context.Context) error { return failure })
		require.True(t, err == failure, "R9: Do returns fn's error as it is, not %v", err)
		free("an error")

		require.PanicsWithValue(t, "a panic", func() {
			_ = h.Do(ctx, func(context.Context) error { panic("a panic") })
		}, "R9: a panic goes on")
		free("a panic")

		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = h.Do(ctx, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-exited
		free("runtime.Goexit")

		ending, cancel := context.WithCancel(ctx)
		err = h.Do(ending, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled, "R9")
		require.NotErrorIs(t, err, leases.ErrLost, "R9: a cancelled ctx is no loss")
		free("a cancelled ctx")

		require.NoError(t, h.Do(ctx, func(ctx context.Context) error { return h.Release(ctx) }), "R9: fn may release early")
		free("an early release")

		err = h.Do(ctx, func(context.Context) error {
			s.released(t, "R9", leases.Hold{Name: name, Slots: slots, Owner: h.Token()}) // as an operator would
			return failure
		})
		require.ErrorIs(t, err, failure, "R9: fn's error, joined with ErrLost")
		require.ErrorIs(t, err, leases.ErrLost, "R9: fn's error, joined with ErrLost")

		other := s.hold(t, "R9", leases.Claim{Name: name, Slots: slots, Owner: "other", TTL: long})
		err = s.handle(name, slots, long, leases.NonBlocking()).Do(ctx, func(context.Context) error {
			require.Fail(t, "R9: fn does not run while others hold the name")
			return nil
		})
		require.ErrorIs(t, err, leases.ErrNotAcquired, "R9")
		s.released(t, "R9", other.Hold)
	})
}

func keepAlive(t *testing.T, s store) {
	forKinds(t, func(t *testing.T, slots int) {
		t.Run("several_TTLs", func(t *testing.T) { keptAlive(t, s, slots) })
		t.Run("errors_are_retried", func(t *testing.T) {
			keptAlive(t, s, slots, unsent, replyLost, unsent, works, replyLost, replyLost, works, unsent)
		})
		t.Run("until_the_deadline", func(t *testing.T) { retriedUntilTheDeadline(t, s, slots) })
		t.Run("a_refusal_is_a_loss", func(t *testing.T) { refusalIsALoss(t, s, slots) })
		t.Run("ends_with_the_hold", func(t *testing.T) { refreshesEnd(t, s, slots) })
	})
}

// keptAlive watches a hold for three TTLs while some refreshes fail.
func keptAlive(t *testing.T, s store, slots int, faults ...fault) {
	inTime(t, 2*short, func(ttl time.Duration) bool {
		name, ctx, f := newName(), bounded(t), newFaulty(s.Backend)
		f.next(refreshing, faults...)
		h := store{f}.handle(name, slots, ttl, leases.KeepAlive())
		began := time.Now()
		if err := h.Acquire(ctx); err != nil {
			require.Greater(t, time.Since(began), ttl, "R10: acquire: %v", err)
			return false
		}
		other, lost := leases.Claim{Name: name, Slots: slots, Owner: "b", TTL: long}, h.Lost()
		for time.Since(began) < 3*ttl {
			time.Sleep(ttl / 8)
			over := s.acquire(t, other).Held
			select {
			case <-lost:
				over = true
			default:
			}
			if over && stalled(f, ttl) {
				return false
			}
			require.False(t, over, "R10: a hold with KeepAlive is kept over several TTLs")
		}
		err, took := h.Release(ctx), time.Since(began)
		if err != nil && stalled(f, ttl) {
			return false
		}
		require.NoError(t, err, "R10: still held after several TTLs")
		if len(faults) == 0 {
			require.LessOrEqual(t, len(f.calls(refreshing)), int(3*took/ttl)+1, "R10: refreshed at a third of the TTL, not more often")
		}
		return true
	})
}

// stalled reports whether a TTL may have passed between two refreshes only
// because the store or this machine was slow.
func stalled(f *faulty, ttl time.Duration) bool {
	before := f.calls(acquiring)[0].began
	for _, c := range append(f.calls(refreshing), call{began: time.Now(), ended: time.Now()}) {
		if c.failed {
			continue
		}
		if c.ended.Sub(before) >= ttl {
			return true
		}
		before = c.began
	}
	return false
}

func retriedUntilTheDeadline(t *testing.T, s store, slots int) {
	inTime(t, 2*short, func(ttl time.Duration) bool {
		name, ctx, f := newName(), bounded(t), newFaulty(s.Backend)
		f.always(refreshing, unsent)
		h := store{f}.handle(name, slots, ttl, leases.KeepAlive())
		began := time.Now()
		err := h.Acquire(ctx)
		deadline := h.Deadline()
		if deadline.IsZero() {
			require.Greater(t, time.Since(began), ttl, "R10: acquire: %v", err)
			return false
		}
		select {
		case <-h.Lost():
		case <-ctx.Done():
			require.Fail(t, "R10: what could not be refreshed is lost at the deadline")
		}
		require.False(t, time.Now().Before(deadline), "R10: an error of the store is no loss before the deadline")
		tries := len(f.calls(refreshing))
		require.Positive(t, tries, "R10: a refresh is tried at a third of the TTL")
		return tries > 1 // too slow to have tried again
	})
}

func refusalIsALoss(t *testing.T, s store, slots int) {
	inTime(t, 4*short, func(ttl time.Duration) bool {
		name, ctx := newName(), bounded(t)
		h := s.handle(name, slots, ttl, leases.KeepAlive())
		began := time.Now()
		err := h.Acquire(ctx)
		deadline := h.Deadline()
		if deadline.IsZero() {
			require.Greater(t, time.Since(began), ttl, "R10: acquire: %v", err)
			return false
		}
		ok, err := s.Release(ctx, leases.Hold{Name: name, Slots: slots, Owner: h.Token()}) // as an operator would
		require.NoError(t, err)
		if !ok || time.Since(began) > ttl/3 {
			return false
		}
		select {
		case <-h.Lost():
		case <-ctx.Done():
			require.Fail(t, "R10: what the store refuses to refresh is lost")
		}
		return time.Now().Before(deadline) // by the refusal, then; else it may have been the deadline
	})
}

func refreshesEnd(t *testing.T, s store, slots int) {
	const ttl = short
	ctx := bounded(t)
	for _, end := range []func(h *leases.Handle){
		func(h *leases.Handle) { _ = h.Release(ctx) },
		func(h *leases.Handle) { h.Detach() },
	} {
		name, f := newName(), newFaulty(s.Backend)
		h := store{f}.handle(name, slots, ttl, leases.KeepAlive())
		if err := h.Acquire(ctx); err != nil {
			require.NotErrorIs(t, err, leases.ErrNotAcquired, "R10")
			continue
		}
		end(h)
		time.Sleep(ttl + coarse)
		after := len(f.calls(refreshing))
		time.Sleep(ttl)
		require.Len(t, f.calls(refreshing), after, "R10: no refresh after the hold was released or detached")
		s.becomesFree(t, "R10", name, slots)
	}
}
