package main

import (
	"context"
	"sort"
	"sync"
	"time"
)

// sample is one run of something: what it measured.
type sample struct {
	name string
	take func(ctx context.Context) (float64, error)
}

// inTurns takes each sample runs times, one after the other, so that what
// disturbs the machine disturbs all of them. The first is ours: ratios are of
// its runs to those beside them of each other sample.
func inTurns(ctx context.Context, runs int, samples ...sample) (medians []float64, ratios []float64, err error) {
	taken := make([][]float64, len(samples))
	for range runs {
		for i, s := range samples {
			v, err := s.take(ctx)
			if err != nil {
				return nil, nil, err
			}
			taken[i] = append(taken[i], v)
		}
	}
	ratios = make([]float64, len(samples))
	for i := range samples {
		var beside []float64
		for run, v := range taken[i] {
			beside = append(beside, taken[0][run]/v)
		}
		ratios[i] = median(beside)
		medians = append(medians, median(taken[i]))
	}
	return medians, ratios, nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// peers are the figures of all samples but the first.
func peers(samples []sample, medians []float64) (all []figure) {
	for i := 1; i < len(samples); i++ {
		all = append(all, figure{samples[i].name, medians[i]})
	}
	return all
}

// rate calls f from goroutines for a while and returns calls a second.
func rate(ctx context.Context, goroutines int, span time.Duration, f func(ctx context.Context, goroutine int) error) (float64, error) {
	var (
		all    sync.WaitGroup
		calls  = make([]int, goroutines)
		errs   = make([]error, goroutines)
		began  = time.Now()
		enough = began.Add(span)
	)
	for g := range goroutines {
		all.Go(func() {
			for errs[g] == nil && time.Now().Before(enough) {
				errs[g] = f(ctx, g)
				calls[g]++
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	total := 0
	for g := range goroutines {
		if errs[g] != nil {
			return 0, errs[g]
		}
		total += calls[g]
	}
	return float64(total) / took, nil
}
