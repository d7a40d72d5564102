package taskguard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestRoom(t *testing.T) {
	b, other := leases.NewInProcess(), leases.NewInProcess()
	x := roomOf(b, "x")
	require.Same(t, x, roomOf(b, "x"))
	leave, ok := x.enter(1)
	require.True(t, ok)
	_, ok = x.enter(1)
	require.False(t, ok, "full")
	for _, r := range []*room{roomOf(b, "y"), roomOf(other, "x")} {
		leaveOther, ok := r.enter(1)
		require.True(t, ok, "another name, or another backend")
		leaveOther()
	}
	leave()
	leave()
	leave, ok = x.enter(1)
	require.True(t, ok)
	leave()
	_, ok = x.enter(0)
	require.False(t, ok)
}

func TestTurnWhileNothingIsKnown(t *testing.T) {
	r := new(room)
	for range 1000 {
		require.GreaterOrEqual(t, r.turn(1, 0), usualDelay/2, "unknown: a jittered second")
		require.Less(t, r.turn(1, 0), usualDelay*3/2)
		require.Less(t, r.turn(1, time.Hour), usualDelay*3/2, "most holders release long before")
		require.Equal(t, 400*time.Millisecond, r.turn(1, 400*time.Millisecond), "the holder's remaining time")
		require.Equal(t, leastDelay, r.turn(1, time.Nanosecond))
	}
}

// TestTurnsAreSpread over the time that those in front take.
func TestTurnsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leases.NewInProcess()
		r := roomOf(b, "x")
		for range 100 {
			ran(b, "x", 4*time.Second)
		}
		ran(b, "never busy", time.Hour)
		leave, ok := r.enter(2)
		require.True(t, ok)
		require.Equal(t, 4*time.Second, r.expected(2))
		for i := range 10 {
			require.Equal(t, time.Duration(2+i)*2*time.Second, r.turn(2, time.Minute), "behind one that waits and %d that were sent away", i)
		}
		leave()
		time.Sleep(15 * time.Second) // the last one's turn is in 7 s
		require.Equal(t, 9*time.Second, r.turn(2, 0))
		time.Sleep(time.Minute)
		require.Equal(t, 2*time.Second, r.turn(2, 0), "all have come back")
		for range 1000 {
			require.Less(t, r.turn(1, 0), mostDelay*3/2, "what is known may be wrong by then")
		}
		for range 100 {
			ran(b, "x", time.Millisecond)
		}
		time.Sleep(2 * mostDelay)
		require.Equal(t, leastDelay, r.turn(1, 0), "tasks have become shorter")
	})
}

// TestRoomsAreForgotten once nobody is in them.
func TestRoomsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rooms.Lock()
		rooms.m, rooms.sweepAt = make(map[place]*room), minSweep
		rooms.Unlock()
		b := leases.NewInProcess()
		leave, _ := roomOf(b, "waits").enter(1)
		defer leave()
		for i := range 10 * minSweep {
			roomOf(b, fmt.Sprint(i)).turn(1, 0)
		}
		require.LessOrEqual(t, len(rooms.m), minSweep)
		require.Equal(t, 1, roomOf(b, "waits").waiting)
	})
}
