package main

import (
	"context"
	"testing"
	"time"

	"github.com/simple-module/core/leases"
)

// inProcess is TryAcquire and Release of a new handle on the in-process backend.
func inProcess(ctx context.Context, e *env) ([]row, error) {
	var nanoseconds, allocations []float64
	for range e.runs {
		b := leases.NewInProcess()
		result := testing.Benchmark(func(t *testing.B) {
			t.ReportAllocs()
			for t.Loop() {
				h := leases.Lease("bench", time.Minute, leases.On(b))
				if ok, err := h.TryAcquire(ctx); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if err := h.Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
		nanoseconds = append(nanoseconds, float64(result.T.Nanoseconds())/float64(result.N))
		allocations = append(allocations, float64(result.AllocsPerOp()))
	}
	var reused []float64
	for range e.runs {
		h := leases.Lease("bench", time.Minute, leases.On(leases.NewInProcess()))
		result := testing.Benchmark(func(t *testing.B) {
			t.ReportAllocs()
			for t.Loop() {
				if ok, err := h.TryAcquire(ctx); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if err := h.Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
		})
		reused = append(reused, float64(result.T.Nanoseconds())/float64(result.N))
		allocations = append(allocations, float64(result.AllocsPerOp()))
	}
	ns, again := median(nanoseconds), median(reused)
	n := median(allocations[e.runs:])
	return []row{
		row{What: "in-process TryAcquire+Release of a handle", Unit: "ns", Ours: again, Figure: again}.atMost(600, "ns"),
		row{What: "the same: allocations", Ours: n, Figure: n}.atMost(6, ""),
		{What: "the same, with a new handle each time", Unit: "ns", Ours: ns, Figure: ns},
	}, nil
}
