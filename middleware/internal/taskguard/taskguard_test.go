package taskguard

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestDelay(t *testing.T) {
	for range 1000 {
		require.GreaterOrEqual(t, delay(0), usualDelay/2, "unknown: a jittered second")
		require.Less(t, delay(0), usualDelay*3/2)
		require.Less(t, delay(time.Hour), usualDelay*3/2, "most holders release long before")
		require.Equal(t, 400*time.Millisecond, delay(400*time.Millisecond), "the holder's remaining time")
		require.Equal(t, leastDelay, delay(time.Nanosecond))
	}
}

func TestRoom(t *testing.T) {
	b, other := leases.NewInProcess(), leases.NewInProcess()
	leave, ok := enterRoom(b, "x", 1)
	require.True(t, ok)
	_, ok = enterRoom(b, "x", 1)
	require.False(t, ok, "full")
	for name, at := range map[string]leases.Backend{"y": b, "x": other} {
		leaveOther, ok := enterRoom(at, name, 1)
		require.True(t, ok, "another name, or another backend")
		leaveOther()
	}
	leave()
	leave()
	leave, ok = enterRoom(b, "x", 1)
	require.True(t, ok)
	leave()
	require.Empty(t, rooms.waiting)
	_, ok = enterRoom(b, "x", 0)
	require.False(t, ok)
}

func TestKeeps(t *testing.T) {
	failed := errors.New("failed")
	retried := Task{Owner: "a", WillRetry: func(error) bool { return true }}
	g := Lease(time.Minute, []Option{HoldThroughRetries()})
	require.True(t, g.keeps(retried, failed))
	require.False(t, g.keeps(retried, nil), "it is done")
	require.False(t, g.keeps(retried, &RescheduleError{Busy: &leases.NotAcquiredError{}}), "it has not begun")
	require.False(t, g.keeps(retried, &failError{failed}), "it has not begun")
	require.False(t, g.keeps(Task{Owner: "a"}, failed), "nothing brings it back")
	require.False(t, g.keeps(Task{WillRetry: retried.WillRetry}, failed), "a retry would be another owner")
	require.False(t, Lease(time.Minute, nil).keeps(retried, failed))
}
