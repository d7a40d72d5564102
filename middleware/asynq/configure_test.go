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

// busyError is that of a task whose key is busy for ttl.
func busyError(t *testing.T, ttl time.Duration) error {
	t.Helper()
	b := leases.NewInProcess()
	require.NoError(t, leases.Lease("import:42", ttl, leases.On(b)).Acquire(t.Context()))
	err := asynqlease.Lease(byDataset, longTTL, asynqlease.On(b), asynqlease.Wait(0))(asynq.HandlerFunc(nothing)).
		ProcessTask(t.Context(), newTask("task", args{Dataset: 42}))
	require.Error(t, err)
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

// The holder's remaining time, if that is shorter than the usual delay.
func TestDelayIsTheHoldersRemainingTime(t *testing.T) {
	var cfg asynq.Config
	asynqlease.Configure(&cfg)
	for range 20 {
		require.LessOrEqual(t, cfg.RetryDelayFunc(0, busyError(t, 300*time.Millisecond), nil), 300*time.Millisecond)
	}
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
