package leases_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// heldByAnother is a backend on which another process holds the lease x.
func heldByAnother(t *testing.T, ttl time.Duration) *scripted {
	t.Helper()
	b := newScripted()
	g, err := b.Backend.Acquire(t.Context(), leases.Claim{Name: "x", Owner: "another process", TTL: ttl})
	require.NoError(t, err)
	require.True(t, g.Held)
	return b
}

func TestR7_TheFirstAttemptIsImmediateAndMayBeTheOnlyOne(t *testing.T) {
	for name, acquire := range map[string]func(ctx context.Context, on leases.Option) error{
		"NonBlocking": func(ctx context.Context, on leases.Option) error {
			return leases.Lease("x", time.Hour, on, leases.NonBlocking(), leases.Wait(time.Hour)).Acquire(ctx)
		},
		"Wait(0)": func(ctx context.Context, on leases.Option) error {
			return leases.Lease("x", time.Hour, on, leases.Wait(0)).Acquire(ctx)
		},
		"TryAcquire": func(ctx context.Context, on leases.Option) error {
			ok, err := leases.Lease("x", time.Hour, on).TryAcquire(ctx)
			if err != nil || ok {
				return errors.Join(err, errors.New("want false and nil"))
			}
			return leases.ErrNotAcquired
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := heldByAnother(t, time.Hour)
				began := time.Now()
				for i := range 20 {
					require.ErrorIs(t, acquire(t.Context(), leases.On(b)), leases.ErrNotAcquired)
					require.Zero(t, time.Since(began))
					require.Len(t, b.calls("acquire"), i+1)
				}
			})
		})
	}
}

func TestR7_WaitEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := heldByAnother(t, time.Hour)
		began := time.Now()
		err := leases.Lease("x", time.Hour, leases.On(b), leases.Wait(3*time.Second)).Acquire(t.Context())
		require.Equal(t, 3*time.Second, time.Since(began))
		var busy *leases.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, "x", busy.Name)
		require.Greater(t, busy.RetryAfter, 59*time.Minute)
		require.LessOrEqual(t, busy.RetryAfter, time.Hour)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestR7_WaitEndsTheWaitInLineToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := heldByAnother(t, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { first <- leases.Lease("x", time.Hour, leases.On(b)).Acquire(ctx) }()
		synctest.Wait()
		began := time.Now()
		err := leases.Lease("x", time.Hour, leases.On(b), leases.Wait(3*time.Second)).Acquire(t.Context())
		require.ErrorIs(t, err, leases.ErrNotAcquired)
		require.Equal(t, 3*time.Second, time.Since(began))
		cancel()
		require.ErrorIs(t, <-first, leases.ErrNotAcquired)
	})
}

func TestR7_CtxEndsTheWait(t *testing.T) {
	why := errors.New("the server shuts down")
	for name, end := range map[string]func(context.Context) (context.Context, error){
		"deadline": func(ctx context.Context) (context.Context, error) {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			context.AfterFunc(ctx, cancel)
			return ctx, context.DeadlineExceeded
		},
		"cancel": func(ctx context.Context) (context.Context, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(3*time.Second, cancel)
			return ctx, context.Canceled
		},
		"cause": func(ctx context.Context) (context.Context, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(3*time.Second, func() { cancel(why) })
			return ctx, context.Canceled
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := heldByAnother(t, time.Hour)
				began := time.Now()
				ctx, want := end(t.Context())
				err := leases.Lease("x", time.Hour, leases.On(b)).Acquire(ctx)
				require.Equal(t, 3*time.Second, time.Since(began))
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, leases.ErrNotAcquired)
				require.ErrorContains(t, err, `acquire "x": busy`)
				if name == "cause" {
					require.ErrorIs(t, err, why)
				}
			})
		})
	}
}

func TestR7_ACtxThatHasEndedSendsNothing(t *testing.T) {
	b := newScripted()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := leases.Lease("x", time.Hour, leases.On(b))
	err := h.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, leases.ErrNotAcquired)
	ok, err := h.TryAcquire(ctx)
	require.ErrorIs(t, err, context.Canceled, "not false and nil: nobody was asked")
	require.False(t, ok)
	require.Empty(t, b.calls("acquire"))
}

func TestR7_AWaiterAcquiresAtTheHoldersExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := heldByAnother(t, time.Minute)
		began := time.Now()
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.LessOrEqual(t, time.Since(began), time.Minute+time.Millisecond)
	})
}

func TestR7_AWaiterAcquiresWhenAHolderOfThisProcessIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		began := time.Now()
		require.NoError(t, leases.Lease("x", time.Minute, leases.On(b)).Acquire(t.Context()))
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		require.LessOrEqual(t, time.Since(began), time.Minute+time.Millisecond)
	})
}

// TestR7_WhatIsGivenBackWakesAWaiter, as a release does.
func TestR7_WhatIsGivenBackWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("acquire", step{err: errStore, lag: time.Second})
		failed := make(chan error)
		go func() { failed <- leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, <-failed, errStore)
	})
}

func TestR7_AnErrorEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := heldByAnother(t, time.Hour)
		b.next("acquire", step{}, step{}, step{}, step{err: errStore, unsent: true})
		err := leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context())
		require.ErrorIs(t, err, errStore)
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
		require.Len(t, b.calls("acquire"), 4)
		time.Sleep(10 * time.Second)
	})
}

func TestR12_TheWrongKindEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := heldByAnother(t, time.Second)
		waited := make(chan error)
		go func() { waited <- leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()) }()
		synctest.Wait()
		_, err := b.Backend.Release(t.Context(), leases.Hold{Name: "x", Owner: "another process"})
		require.NoError(t, err)
		g, err := b.Backend.Acquire(t.Context(), leases.Claim{Name: "x", Slots: 1, Owner: "yet another", TTL: time.Hour})
		require.NoError(t, err)
		require.True(t, g.Held)
		err = <-waited
		require.ErrorIs(t, err, leases.ErrKind)
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
	})
}
