package riverlease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/simple-module/core/internal/testbackends"
	"github.com/simple-module/core/leases"
)

// onBackends runs the test with River on each database and each backend.
func onBackends(t *testing.T, test func(t *testing.T, q *queue, b leases.Backend)) {
	t.Helper()
	t.Parallel()
	for database, open := range queues {
		for kind, backend := range testbackends.All {
			t.Run("River on "+database+", leases on "+kind, func(t *testing.T) {
				t.Parallel()
				test(t, open(t), backend(t))
			})
		}
	}
}

// troubled is a backend whose store can be made to fail.
type troubled struct {
	leases.Backend
	acquire, release atomic.Bool
}

var errStore = errors.New("store: connection refused")

func (b *troubled) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	if b.acquire.Load() {
		return leases.Grant{}, errStore
	}
	return b.Backend.Acquire(ctx, c)
}

func (b *troubled) Release(ctx context.Context, h leases.Hold) (bool, error) {
	if b.release.Load() {
		return false, errStore
	}
	return b.Backend.Release(ctx, h)
}
