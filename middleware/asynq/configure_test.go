package asynqlease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

// alwaysBusy is a backend whose holders still have what it says.
type alwaysBusy time.Duration

func (d alwaysBusy) Acquire(context.Context, leases.Claim) (leases.Grant, error) {
	return leases.Grant{RetryAfter: time.Duration(d)}, nil
}

func (alwaysBusy) Refresh(context.Context, leases.Hold, time.Duration) (bool, error) {
	return false, nil
}

func (alwaysBusy) Release(context.Context, leases.Hold) (bool, error) { return false, nil }

// busyError is that of a task whose key is busy.
func busyError(t *testing.T, remaining time.Duration) error {
	t.Helper()
	err := asynqlease.Lease(byDataset, longTTL, asynqlease.On(alwaysBusy(remaining)))(asynq.HandlerFunc(nothing)).
		ProcessTask(t.Context(), newTask("task", args{Dataset: 42}))
	require.ErrorIs(t, err, leases.ErrNotAcquired)
	return err
}

func TestConfigureDefaults(t *testing.T) {
	busy := busyError(t, longTTL)
	var cfg asynq.Config
	for range 2 { // the second call changes nothing
		asynqlease.Configure(&cfg)
		require.False(t, cfg.IsFailure(busy))
		require.False(t, cfg.IsFailure(fmt.Errorf("wrapped: %w", busy)))
		require.True(t, cfg.IsFailure(errWork))
		require.True(t, cfg.IsFailure(leases.ErrNotAcquired), "the handler's own")
		delay := cfg.RetryDelayFunc(3, busy, nil)
		require.GreaterOrEqual(t, delay, 500*time.Millisecond)
		require.LessOrEqual(t, delay, 1500*time.Millisecond)
		require.GreaterOrEqual(t, cfg.RetryDelayFunc(0, errWork, nil), 15*time.Second, "asynq's own")
		require.Equal(t, asynqlease.CheckInterval, cfg.DelayedTaskCheckInterval)
	}
	asynqlease.Configure(nil)
}

func TestConfigureKeepsWhatIsThere(t *testing.T) {
	harmless := errors.New("harmless")
	cfg := asynq.Config{
		Concurrency:              3,
		IsFailure:                func(err error) bool { return !errors.Is(err, harmless) },
		RetryDelayFunc:           func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) * time.Hour },
		DelayedTaskCheckInterval: time.Minute,
	}
	asynqlease.Configure(&cfg)
	busy := busyError(t, longTTL)
	require.False(t, cfg.IsFailure(busy))
	require.False(t, cfg.IsFailure(harmless))
	require.True(t, cfg.IsFailure(errWork))
	require.Equal(t, 7*time.Hour, cfg.RetryDelayFunc(7, errWork, nil))
	require.Less(t, cfg.RetryDelayFunc(7, busy, nil), time.Minute)
	require.Equal(t, time.Minute, cfg.DelayedTaskCheckInterval)
	require.Equal(t, 3, cfg.Concurrency)
}

// The delay is the holder's remaining time, if that is known and shorter than
// the usual second, and never so short that a busy key keeps the queue busy.
func TestDelay(t *testing.T) {
	var cfg asynq.Config
	asynqlease.Configure(&cfg)
	delay := func(remaining time.Duration) time.Duration {
		return cfg.RetryDelayFunc(0, busyError(t, remaining), nil)
	}
	require.Equal(t, 300*time.Millisecond, delay(300*time.Millisecond))
	require.Equal(t, 50*time.Millisecond, delay(time.Millisecond))
	delays := map[time.Duration]bool{}
	for _, remaining := range []time.Duration{0, longTTL, 0, longTTL} {
		d := delay(remaining)
		require.GreaterOrEqual(t, d, 500*time.Millisecond)
		require.LessOrEqual(t, d, 1500*time.Millisecond)
		delays[d] = true
	}
	require.Len(t, delays, 4, "jittered")
}

// A queue whose delays are asynq's: only Configure's are short.
func TestConfigureOnAServer(t *testing.T) {
	t.Parallel()
	q, b := newQueue(t), leases.NewInProcess()
	other := holdAway(t, b, "import:42")
	handler, errs := reported()
	cfg := asynq.Config{ErrorHandler: handler, Logger: silent{}, LogLevel: asynq.FatalLevel}
	asynqlease.Configure(&cfg)
	srv := asynq.NewServerFromRedisClient(q.redis, cfg)
	ran := make(chan struct{}, 1)
	require.NoError(t, srv.Start(behind(func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil },
		asynqlease.Lease(byDataset, longTTL, asynqlease.On(b)))))
	t.Cleanup(srv.Shutdown)
	task := q.add(t, args{Dataset: 42}, asynq.MaxRetry(1))
	awaitBusy(t, errs, 2)
	require.NoError(t, other.Release(t.Context()))
	receive(t, ran, "the task")
	require.Zero(t, q.await(t, task, asynq.TaskStateCompleted).Retried)
}
