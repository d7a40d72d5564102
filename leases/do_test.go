package leases_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestR9_DoReleasesHoweverFnEnds(t *testing.T) {
	failure := errors.New("the work failed")
	for name, end := range map[string]func(h *leases.Handle, cancel func()) error{
		"return":       func(*leases.Handle, func()) error { return nil },
		"error":        func(*leases.Handle, func()) error { return failure },
		"panic":        func(*leases.Handle, func()) error { panic("a panic") },
		"Goexit":       func(*leases.Handle, func()) error { runtime.Goexit(); return nil },
		"cancelled":    func(_ *leases.Handle, cancel func()) error { cancel(); return context.Canceled },
		"early":        func(h *leases.Handle, _ func()) error { return h.Release(context.Background()) },
		"panic, early": func(h *leases.Handle, _ func()) error { _ = h.Release(context.Background()); panic("a panic") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newScripted()
				h := leases.Lease("x", time.Hour, leases.On(b), leases.KeepAlive())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan any)
				go func() {
					var err error
					defer func() {
						if p := recover(); p != nil {
							ended <- p
						} else {
							ended <- err
						}
					}()
					err = h.Do(ctx, func(context.Context) error { return end(h, cancel) })
				}()
				how := <-ended
				switch name {
				case "error":
					require.True(t, how == any(failure), "fn's error as it is: %v", how)
				case "cancelled":
					require.True(t, how == any(context.Canceled), "fn's error as it is: %v", how)
				case "panic", "panic, early":
					require.Equal(t, "a panic", how)
				default:
					require.Nil(t, how)
				}
				require.Len(t, b.calls("release"), 1)
				require.True(t, b.free(t, "x"))
				require.Zero(t, h.Deadline())
			})
		})
	}
}

// TestR9_TheReleaseHasATimeOfItsOwn, and does not end with ctx.
func TestR9_TheReleaseHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		b.next("release", step{hangs: true, unsent: true})
		h := leases.Lease("x", time.Hour, leases.On(b))
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		require.NoError(t, h.Do(ctx, func(context.Context) error { cancel(); return nil }), "the work is done all the same")
		require.Equal(t, 5*time.Second, time.Since(began))
		require.NoError(t, h.Release(t.Context()), "it can be released later")
		require.True(t, b.free(t, "x"))
	})
}

func TestR9_ALossIsJoinedToFnsError(t *testing.T) {
	failure := errors.New("the work failed")
	for name, lose := range map[string]func(b *scripted, h *leases.Handle){
		"expired": func(*scripted, *leases.Handle) { time.Sleep(time.Minute) },
		"refused": func(b *scripted, _ *leases.Handle) { b.next("release", step{refused: true}) },
		"taken over": func(b *scripted, h *leases.Handle) {
			_ = leases.Lease("x", time.Minute, leases.On(b), leases.Owner(h.Token())).Acquire(context.Background())
		},
	} {
		for _, fnErr := range []error{nil, failure} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newScripted()
					h := leases.Lease("x", time.Minute, leases.On(b), leases.Owner("task"))
					err := h.Do(t.Context(), func(context.Context) error {
						lose(b, h)
						return fnErr
					})
					require.ErrorIs(t, err, leases.ErrLost)
					if fnErr != nil {
						require.ErrorIs(t, err, fnErr)
					}
				})
			})
		}
	}
}

func TestR9_DoDoesNotRunWithoutTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		fn := func(context.Context) error {
			t.Error("fn has run")
			return nil
		}
		require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
		require.ErrorIs(t, leases.Lease("x", time.Hour, leases.On(b), leases.Wait(time.Second)).Do(t.Context(), fn), leases.ErrNotAcquired)
		require.ErrorIs(t, leases.Semaphore("x", 2, time.Hour, leases.On(b)).Do(t.Context(), fn), leases.ErrKind)
		require.ErrorIs(t, leases.Lease("", time.Hour, leases.On(b)).Do(t.Context(), fn), leases.ErrInvalid)
		b.next("acquire", step{err: errStore})
		require.ErrorIs(t, leases.Lease("y", time.Hour, leases.On(b)).Do(t.Context(), fn), errStore)
		time.Sleep(10 * time.Second) // what may have been acquired is given back
	})
}

func TestFromContextIsTheInnermostHandle(t *testing.T) {
	_, ok := leases.FromContext(t.Context())
	require.False(t, ok)
	b := leases.NewInProcess()
	tenant := leases.Semaphore("tenant", 4, time.Hour, leases.On(b))
	dataset := leases.Lease("dataset", time.Hour, leases.On(b))
	require.NoError(t, tenant.Do(t.Context(), func(ctx context.Context) error {
		outer := ctx
		err := dataset.Do(ctx, func(ctx context.Context) error {
			h, ok := leases.FromContext(ctx)
			require.True(t, ok)
			require.Same(t, dataset, h)
			return nil
		})
		h, ok := leases.FromContext(outer)
		require.True(t, ok)
		require.Same(t, tenant, h)
		return err
	}))
}

// TestR9_AnOuterLossEndsTheInnerWork too: the inner ctx is a child.
func TestR9_AnOuterLossEndsTheInnerWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newScripted()
		outer := leases.Lease("outer", time.Minute, leases.On(b))
		inner := leases.Lease("inner", time.Hour, leases.On(b))
		err := outer.Do(t.Context(), func(ctx context.Context) error {
			return inner.Do(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), leases.ErrLost)
				return nil
			})
		})
		require.ErrorIs(t, err, leases.ErrLost)
		require.True(t, b.free(t, "inner"))
	})
}
