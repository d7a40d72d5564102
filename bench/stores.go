package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/simple-module/core/leases"
)

// What is measured alike on every store.

// latencies is the median time of an acquire in microseconds, of one goroutine
// and ever new names.
func latencies(ctx context.Context, e *env, lock locker) (float64, error) {
	n := 3000
	if e.quick {
		n = 100
	}
	var took []float64
	for i := range n {
		began := time.Now()
		release, err := lock(ctx, fmt.Sprint("one more", i))
		if err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began))/1e3)
		if err := release(); err != nil {
			return 0, err
		}
	}
	return median(took), nil
}

// slots is the time of an acquire of the last free slot of a large semaphore
// against a small one.
func slots(ctx context.Context, e *env, store string, b leases.Backend) (row, error) {
	last := func(slots int) (func(context.Context) (float64, error), error) {
		name := fmt.Sprint("slots", slots)
		for i := range slots - 1 {
			g, err := b.Acquire(ctx, leases.Claim{Name: name, Slots: slots, Owner: fmt.Sprint("holder", i), TTL: time.Hour})
			if err != nil || !g.Held {
				return nil, fmt.Errorf("slot %d of %d: held %v, %v", i, slots, g.Held, err)
			}
		}
		return func(ctx context.Context) (float64, error) {
			n := 300
			if e.quick {
				n = 20
			}
			var took []float64
			for range n {
				h := leases.Semaphore(name, slots, time.Hour, leases.On(b), leases.NonBlocking())
				began := time.Now()
				if err := h.Acquire(ctx); err != nil {
					return 0, err
				}
				took = append(took, float64(time.Since(began))/1e3)
				if err := h.Release(ctx); err != nil {
					return 0, err
				}
			}
			return median(took), nil
		}, nil
	}
	large, err := last(10_000)
	if err != nil {
		return row{}, err
	}
	small, err := last(10)
	if err != nil {
		return row{}, err
	}
	samples := []sample{{"10,000 slots", large}, {"10 slots", small}}
	medians, ratios, err := inTurns(ctx, e.runs, samples...)
	if err != nil {
		return row{}, err
	}
	return row{
		What: store + ", acquire of the last of 10,000 slots against the last of 10", Unit: "µs",
		Ours: medians[0], Peers: peers(samples, medians), Figure: ratios[1],
	}, nil
}

// waiters has a thousand waiters on one name that nobody releases, and counts
// what they cost.
func waiters(ctx context.Context, e *env, store string, b leases.Backend, operations func() (float64, error)) ([]row, error) {
	holder := leases.Lease("waited for", time.Hour, leases.On(b))
	if err := holder.Acquire(ctx); err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second) // the client's own goroutines are there
	before := runtime.NumGoroutine()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() { _ = leases.Lease("waited for", time.Hour, leases.On(b)).Acquire(waiting) })
	}
	time.Sleep(2 * time.Second) // the first pauses are shorter
	span := e.span(10 * time.Second)
	cpu, err := cpuTime()
	if err != nil {
		return nil, err
	}
	asked, err := operations()
	if err != nil {
		return nil, err
	}
	time.Sleep(span)
	askedThen, err := operations()
	if err != nil {
		return nil, err
	}
	cpuThen, err := cpuTime()
	if err != nil {
		return nil, err
	}
	cancel()
	all.Wait()
	left := 0
	for range 200 { // 20 s: an idle subscription ends in between
		if left = runtime.NumGoroutine() - before; left <= 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := holder.Release(ctx); err != nil {
		return nil, err
	}
	rate := (askedThen - asked) / span.Seconds()
	core := 100 * (cpuThen - cpu).Seconds() / span.Seconds()
	return []row{
		row{What: store + ", 1,000 waiters on one name: store operations", Unit: "/s", Ours: rate, Figure: rate}.atMost(5, "/s"),
		row{What: "the same: CPU", Unit: "% of a core", Ours: core, Figure: core}.atMost(2, "%"),
		row{What: "the same: goroutines left afterwards", Ours: float64(max(left, 0)), Figure: float64(max(left, 0))}.atMost(0, ""),
	}, nil
}

func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
