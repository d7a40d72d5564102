package leases_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestNotAcquiredErrorIsFoundAsPointerAndValue(t *testing.T) {
	b := newScripted()
	require.NoError(t, leases.Lease("x", time.Hour, leases.On(b)).Acquire(t.Context()))
	err := leases.Lease("x", time.Hour, leases.On(b), leases.NonBlocking()).Acquire(t.Context())
	for _, err := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(errors.New("joined"), err)} {
		require.ErrorIs(t, err, leases.ErrNotAcquired)
		var pointer *leases.NotAcquiredError
		require.True(t, errors.As(err, &pointer))
		var value leases.NotAcquiredError
		require.True(t, errors.As(err, &value))
		require.Equal(t, *pointer, value)
		require.Equal(t, "x", value.Name)
		require.Positive(t, value.RetryAfter)
	}
	for _, err := range []error{leases.NotAcquiredError{Name: "x"}, &leases.NotAcquiredError{Name: "x"}} {
		require.ErrorIs(t, err, leases.ErrNotAcquired)
		require.NotErrorIs(t, err, leases.ErrLost)
	}
}

func TestErrorsSayWhatWasTriedOnWhat(t *testing.T) {
	b := newScripted()
	holder := leases.Lease("import:42", time.Hour, leases.On(b))
	require.NoError(t, holder.Acquire(t.Context()))
	busy := leases.NotAcquiredError{Name: "import:42"}
	require.EqualError(t, busy, `leases: acquire "import:42": busy`)
	busy.RetryAfter = 90 * time.Second
	require.EqualError(t, busy, `leases: acquire "import:42": busy for at most 1m30s`)

	require.EqualError(t, leases.Semaphore("import:42", 2, time.Hour, leases.On(b)).Acquire(t.Context()),
		`leases: acquire "import:42": wrong kind: "import:42" is in use as a lease and can't be a semaphore before that ends`)
	require.NoError(t, leases.Semaphore("host", 2, time.Hour, leases.On(b)).Acquire(t.Context()))
	require.EqualError(t, leases.Lease("host", time.Hour, leases.On(b)).Acquire(t.Context()),
		`leases: acquire "host": wrong kind: "host" is in use as a semaphore and can't be a lease before that ends`)

	require.NoError(t, holder.Release(t.Context()))
	require.EqualError(t, holder.Release(t.Context()), `leases: release "import:42": lost: it is not held`)
	require.EqualError(t, holder.Refresh(t.Context()), `leases: refresh "import:42": lost: it is not held`)
	b.next("acquire", step{err: errStore, unsent: true})
	require.EqualError(t, leases.Lease("x", time.Hour, leases.On(b), leases.Owner("a")).Acquire(t.Context()),
		`leases: acquire "x": the store does not answer`)
}

// TestCase10_ARefreshAfterExpirySaysThatItExpired, whoever noticed.
func TestCase10_ARefreshAfterExpirySaysThatItExpired(t *testing.T) {
	b := newScripted()
	h := leases.Lease("x", time.Hour, leases.On(b))
	require.NoError(t, h.Acquire(t.Context()))
	b.next("refresh", step{refused: true})
	err := h.Refresh(t.Context())
	require.ErrorIs(t, err, leases.ErrLost)
	require.ErrorContains(t, err, "expired")

	h = leases.Lease("x", time.Millisecond, leases.On(newScripted()))
	require.NoError(t, h.Acquire(t.Context()))
	<-h.Lost()
	err = h.Refresh(t.Context())
	require.ErrorIs(t, err, leases.ErrLost)
	require.ErrorContains(t, err, "its TTL passed")
}
