//go:build unix

package sqlitelease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
)

func init() { children["hold"], children["contend"] = childHold, childContend }

// childHold holds a lease and a slot until it is killed.
func childHold(path string) {
	b := sqlitelease.New(childDB(path))
	must(leases.Lease("lease", holdTTL, leases.On(b)).Acquire(context.Background()))
	must(leases.Semaphore("semaphore", 1, holdTTL, leases.On(b)).Acquire(context.Background()))
	say("held")
	untilToldToStop()
}

const holdTTL = 5 * time.Second

func TestCase15_AKilledProcessesSlotsAreFreeAfterTheirTTL(t *testing.T) {
	db, path := open(t)
	b := sqlitelease.New(db)
	holder := startChild(t, "hold", path)
	require.Equal(t, "held", holder.line(t))
	require.NoError(t, holder.Process.Kill())
	lease := leases.Lease("lease", time.Minute, leases.On(b))
	slot := leases.Semaphore("semaphore", 1, time.Minute, leases.On(b))
	for _, h := range []*leases.Handle{lease, slot} {
		ok, err := h.TryAcquire(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
	}

	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	require.NoError(t, lease.Acquire(ctx))
	require.NoError(t, slot.Acquire(ctx))
}

const (
	contendTTL   = 3 * time.Second
	contendSlots = 2
)

// childContend acquires and releases a lease and a semaphore until it is told
// to stop. Inside each hold it takes a lock of the operating system, which a
// second holder would find taken.
func childContend(path string) {
	b := sqlitelease.New(childDB(path))
	stop, cancel := context.WithCancel(context.Background())
	go func() { untilToldToStop(); cancel() }()

	done := make(chan struct{})
	contend := func(h *leases.Handle, kind string, witnesses int) {
		defer func() { done <- struct{}{} }()
		for stop.Err() == nil {
			if err := h.Acquire(stop); err != nil {
				if !errors.Is(err, context.Canceled) {
					say("ERROR %v", err)
				}
				continue
			}
			if time.Until(h.Deadline()) > contendTTL/2 { // a process that stalled may not have much left
				say("%s", witness(path, kind, witnesses, h.Fence()))
			}
			if err := h.Release(context.Background()); err != nil && !errors.Is(err, leases.ErrLost) {
				say("ERROR %v", err)
			}
		}
	}
	go contend(leases.Lease("lease", contendTTL, leases.On(b)), "lease", 1)
	go contend(leases.Semaphore("semaphore", contendSlots, contendTTL, leases.On(b)), "semaphore", contendSlots)
	<-done
	<-done
}

// witness takes one of n locks for a moment, and checks that the fence kept
// under it has grown when there is only one.
func witness(path, kind string, n int, fence int64) string {
	for i := range n {
		f, err := os.OpenFile(filepath.Join(filepath.Dir(path), fmt.Sprint(kind, i)), os.O_RDWR|os.O_CREATE, 0o600)
		must(err)
		defer f.Close()
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			continue
		}
		before := make([]byte, 20)
		if k, _ := f.ReadAt(before, 0); k > 0 && n == 1 {
			previous, err := strconv.ParseInt(strings.TrimSpace(string(before[:k])), 10, 64)
			must(err)
			if fence <= previous {
				return fmt.Sprintf("WRONG %s: fence %d after %d", kind, fence, previous)
			}
		}
		_, err = fmt.Fprintf(f, "%19d", fence)
		must(err)
		time.Sleep(time.Millisecond)
		return fmt.Sprintf("%s %d", kind, fence)
	}
	return fmt.Sprintf("WRONG %s: fence %d is one holder too many", kind, fence)
}

func TestR1_FourProcessesExcludeEachOtherAlsoWhenOneIsKilled(t *testing.T) {
	_, path := open(t)
	var running []*child
	for range 4 {
		running = append(running, startChild(t, "contend", path))
	}
	seen := map[string]bool{}
	read := func(c *child) (kind string) {
		l := c.line(t)
		require.NotRegexp(t, "^(ERROR|WRONG)", l)
		require.False(t, seen[l], "%q was granted twice", l)
		seen[l] = true
		kind, _, _ = strings.Cut(l, " ")
		return kind
	}
	// Everyone gets a turn at both, before and after the kill.
	everyone := func() {
		for _, c := range running {
			got := map[string]int{}
			for got["lease"] < 25 || got["semaphore"] < 25 {
				got[read(c)]++
			}
		}
	}
	everyone()
	require.NoError(t, running[0].Process.Kill())
	running = running[1:]
	everyone()
	for _, c := range running {
		c.stdin.Close()
	}
	for _, c := range running {
		for l := range c.lines {
			require.NotRegexp(t, "^(ERROR|WRONG)", l)
			require.False(t, seen[l], "%q was granted twice", l)
			seen[l] = true
		}
	}
}
