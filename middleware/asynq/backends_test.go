package asynqlease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/testbackends"
	"github.com/simple-module/core/leases"
)

// onBackends runs the test with asynq on Redis and the leases on each backend.
func onBackends(t *testing.T, test func(t *testing.T, q *queue, b leases.Backend)) {
	t.Helper()
	t.Parallel()
	for kind, backend := range testbackends.All {
		t.Run("leases on "+kind, func(t *testing.T) {
			t.Parallel()
			test(t, newQueue(t), backend(t))
		})
	}
}

// troubled is a backend whose store can be made to fail. It counts the attempts
// that it has refused, and those that have failed.
type troubled struct {
	leases.Backend
	acquire, release atomic.Bool
	refused, failed  atomic.Int64
}

var errStore = errors.New("store: connection refused")

func (b *troubled) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	if b.acquire.Load() {
		b.failed.Add(1)
		return leases.Grant{}, errStore
	}
	g, err := b.Backend.Acquire(ctx, c)
	if err == nil && !g.Held {
		b.refused.Add(1)
	}
	return g, err
}

func (b *troubled) Release(ctx context.Context, h leases.Hold) (bool, error) {
	if b.release.Load() {
		return false, errStore
	}
	return b.Backend.Release(ctx, h)
}

// awaitRefused returns once n attempts have been refused.
func (b *troubled) awaitRefused(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.refused.Load() >= n }, hang, time.Millisecond, "nobody asked")
}

// awaitFailed returns once n attempts have failed.
func (b *troubled) awaitFailed(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.failed.Load() >= n }, hang, time.Millisecond, "nobody asked")
}
