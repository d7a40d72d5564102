package taskguard

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// scripted is a backend whose attempts end as it says, in that order, and
// further ones with a hold.
type scripted struct {
	leases.Backend
	attempts []error
}

var (
	errBusy  error // no error, and no hold
	errStore = errors.New("store: connection refused")
)

func (b *scripted) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	if len(b.attempts) == 0 {
		return b.Backend.Acquire(ctx, c)
	}
	err := b.attempts[0]
	b.attempts = b.attempts[1:]
	return leases.Grant{}, err
}

func guardOn(b leases.Backend, opts ...Option) *Guard {
	return Lease(time.Minute, append(opts, On(b), Logger(slog.New(slog.DiscardHandler))))
}

func TestLastAttemptWaitsThroughErrorsOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{leases.NewInProcess(), []error{errBusy, errBusy, errStore, errStore, errBusy, errStore}}
		runs := 0
		err := guardOn(b).Run(t.Context(), Task{Key: "x", Owner: "a", MustWait: true}, func(context.Context) error {
			runs++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, runs)
		require.Empty(t, b.attempts)
	})
}

// Waiting does not help there, and nothing runs.
func TestLastAttemptThatCannotBegin(t *testing.T) {
	kind := leases.Claim{Name: "x"}.KindError()
	for name, c := range map[string]struct {
		mustWait bool
		attempts []error
		want     error
	}{
		"an error of the store at once":       {true, []error{errStore}, errStore},
		"the kind":                            {true, []error{errBusy, errBusy, kind}, leases.ErrKind},
		"an argument":                         {true, []error{errBusy, errBusy, leases.ErrInvalid}, leases.ErrInvalid},
		"an error of the store, not the last": {false, []error{errBusy, errBusy, errStore}, errStore},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &scripted{leases.NewInProcess(), c.attempts}
				err := guardOn(b).Run(t.Context(), Task{Key: "x", Owner: "a", MustWait: c.mustWait}, func(context.Context) error {
					panic("it runs")
				})
				require.ErrorIs(t, err, c.want)
				require.NotErrorIs(t, err, leases.ErrNotAcquired)
				require.Empty(t, b.attempts)
			})
		})
	}
}

func TestLastAttemptWaitsUntilCtxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		down := make([]error, 1000)
		for i := range down[2:] {
			down[i+2] = errStore
		}
		for name, backend := range map[string]leases.Backend{"busy": b, "the store is down": &scripted{b, down}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			err := guardOn(backend).Run(ctx, Task{Key: "x", Owner: "a", MustWait: true}, func(context.Context) error { panic("it runs") })
			require.Error(t, err, name)
			require.Equal(t, time.Minute, time.Since(began), name)
			cancel()
		}
	})
}

// What the work's own error is does not matter, once it has begun.
func TestLastAttemptRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &scripted{leases.NewInProcess(), []error{errBusy, errBusy}}
		runs := 0
		err := guardOn(b).Run(t.Context(), Task{Key: "x", Owner: "a", MustWait: true}, func(context.Context) error {
			runs++
			return errStore
		})
		require.Equal(t, errStore, err)
		require.Equal(t, 1, runs)
	})
}

// Two guards, in either order, on names that are taken in turn: the task waits
// for one of them at a time and holds nothing meanwhile.
func TestCase21LastAttemptHoldsNothingWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		hold := func(name string) *leases.Handle {
			h := leases.Lease(name, time.Hour, leases.On(b))
			require.NoError(t, h.Acquire(t.Context()))
			return h
		}
		inner, outer := hold("inner"), (*leases.Handle)(nil)
		g, in := guardOn(b), guardOn(b)
		task := Task{Key: "outer", Owner: "a", MustWait: true}
		inTask := task
		inTask.Key = "inner"
		runs := 0
		done := make(chan error, 1)
		go func() {
			done <- g.Run(t.Context(), task, func(ctx context.Context) error {
				return in.Run(ctx, inTask, func(context.Context) error { runs++; return nil })
			})
		}()
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			outer = hold("outer") // it is free
			require.NoError(t, inner.Release(t.Context()))
			time.Sleep(time.Minute)
			synctest.Wait()
			inner = hold("inner") // it is free
			require.NoError(t, outer.Release(t.Context()))
		}
		require.Zero(t, runs)
		require.NoError(t, inner.Release(t.Context()))
		require.NoError(t, <-done)
		require.Equal(t, 1, runs)
		hold("outer")
		hold("inner")
	})
}

func TestWaitIsHalfOfTheTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		for _, c := range []struct {
			opts   []Option
			waited time.Duration
		}{
			{nil, DefaultWait},
			{[]Option{OnBusy(Fail)}, 0},
			{[]Option{OnBusy(Skip)}, 0},
			{[]Option{OnBusy(Skip), Wait(time.Second)}, time.Second},
			{[]Option{Wait(0)}, 0},
			{[]Option{Wait(time.Hour)}, 30 * time.Second},
			{[]Option{Wait(time.Hour), MaxWaiting(0)}, 0},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			guardOn(b, c.opts...).Run(ctx, Task{Key: "x", Owner: "a"}, func(context.Context) error { panic("it runs") })
			require.Equal(t, c.waited, time.Since(began))
			cancel()
		}
	})
}

// overtaken is a backend on which another attempt of the same process acquires
// the name right after the first grant of it.
type overtaken struct {
	leases.Backend
	name string
	by   *leases.Handle
}

func (b *overtaken) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	g, err := b.Backend.Acquire(ctx, c)
	if by := b.by; by != nil && g.Held && c.Name == b.name {
		b.by = nil
		return g, errors.Join(err, by.Acquire(ctx))
	}
	return g, err
}

// TestLastAttemptWhoseHoldIsOverRunsOnce: a hold that is over before the work begins begins
// nothing, and the name is waited for again.
func TestLastAttemptWhoseHoldIsOverRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &overtaken{Backend: leases.NewInProcess(), name: "inner"}
		b.by = leases.Lease("inner", time.Minute, leases.On(b), leases.Owner("a"))
		_, err := b.Backend.Acquire(t.Context(), leases.Claim{Name: "inner", Owner: "b", TTL: time.Second})
		require.NoError(t, err)
		outer, inner := guardOn(b), guardOn(b)
		runs := 0
		err = outer.Run(t.Context(), Task{Key: "outer", Owner: "a", MustWait: true}, func(ctx context.Context) error {
			return inner.Run(ctx, Task{Key: "inner", Owner: "a", MustWait: true}, func(context.Context) error {
				runs++
				return nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, 1, runs)
	})
}

// TestNoWaitInVain: a task whose turn can't come in time does not keep a worker
// waiting for it.
func TestNoWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		g := guardOn(b)
		run := func(owner string, takes time.Duration) error {
			return g.Run(t.Context(), Task{Key: "x", Owner: owner}, func(context.Context) error {
				time.Sleep(takes)
				return nil
			})
		}
		busy := func(waits time.Duration) {
			t.Helper()
			began := time.Now()
			var away *RescheduleError
			require.ErrorAs(t, run("b", 0), &away)
			require.Equal(t, waits, time.Since(began))
		}
		go run("a", time.Minute/2)
		synctest.Wait()
		busy(DefaultWait) // nothing is known yet
		time.Sleep(time.Minute)
		go run("a", time.Minute/2)
		synctest.Wait()
		busy(0)
		time.Sleep(time.Minute)
	})
}
