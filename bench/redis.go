package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

// pairs is acquire and release of a name of each goroutine's own.
func pairs(e *env, lock locker, goroutines int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		return rate(ctx, goroutines, e.span(time.Second), func(ctx context.Context, g int) error {
			release, err := lock(ctx, fmt.Sprint("uncontended", g))
			if err != nil {
				return err
			}
			return release()
		})
	}
}

// lockers is a sample of each library.
func lockers(ctx context.Context, e *env, take func(library string, lock locker) func(context.Context) (float64, error), libraries ...string) (all []sample, err error) {
	for _, library := range libraries {
		lock, err := newLocker(ctx, e, library)
		if err != nil {
			return nil, err
		}
		all = append(all, sample{library, take(library, lock)})
	}
	return all, nil
}

func redisUncontended(ctx context.Context, e *env) ([]row, error) {
	samples, err := lockers(ctx, e, func(_ string, lock locker) func(context.Context) (float64, error) { return pairs(e, lock, 16) },
		"ours on Redis", "redislock", "redsync", "rueidislock", "SET NX")
	if err != nil {
		return nil, err
	}
	medians, ratios, err := inTurns(ctx, 3*e.runs, samples...)
	if err != nil {
		return nil, err
	}
	what := row{What: "Redis, uncontended acquire+release, 16 goroutines", Unit: "/s", Ours: medians[0], Peers: peers(samples, medians), Figure: ratios[1]}
	return []row{what.atLeast(1, "x redislock")}, nil
}

func redisHandoff(ctx context.Context, e *env) ([]row, error) {
	n := 60
	if e.quick {
		n = 5
	}
	var samples []sample
	for _, library := range []string{"ours on Redis", "rueidislock", "redislock", "redsync"} {
		samples = append(samples, sample{library, func(ctx context.Context) (float64, error) { return handoffs(ctx, e, library, n) }})
	}
	medians, ratios, err := inTurns(ctx, e.runs, samples...)
	if err != nil {
		return nil, err
	}
	return []row{
		row{What: "Redis, hand-off to a waiter in another process", Unit: "ms", Ours: medians[0], Peers: peers(samples, medians), Figure: ratios[1]}.atMost(1, "x rueidislock"),
	}, nil
}

// redisFairness is 16 workers in 4 processes on one lease.
func redisFairness(ctx context.Context, e *env) ([]row, error) {
	type result struct{ held, fairness, longest, median []float64 }
	libraries := []string{"ours on Redis", "rueidislock", "redislock", "redsync"}
	results := make([]result, len(libraries))
	for range e.runs {
		for i, library := range libraries {
			total, wall, err := contend(e, library, e.span(6*time.Second))
			if err != nil {
				return nil, err
			}
			middle := median(total.Waits)
			r := &results[i]
			r.held = append(r.held, total.Held/wall)
			r.fairness = append(r.fairness, float64(slices.Min(total.Acquired))/float64(slices.Max(total.Acquired)))
			r.longest = append(r.longest, slices.Max(total.Waits)/middle)
			r.median = append(r.median, middle)
		}
	}
	of := func(what, unit string, values func(result) []float64) row {
		r := row{What: what, Unit: unit, Ours: median(values(results[0]))}
		for i := 1; i < len(libraries); i++ {
			r.Peers = append(r.Peers, figure{libraries[i], median(values(results[i]))})
		}
		r.Figure = r.Ours
		return r
	}
	held := func(r result) []float64 { return r.held }
	var beside []float64
	for run := range e.runs {
		beside = append(beside, results[0].held[run]/results[1].held[run])
	}
	against := of("the same: against rueidislock", "", held)
	against.Figure, against.Peers = median(beside), nil
	return []row{
		of("Redis, 16 workers in 4 processes, hold 5 ms, think 20 ms: time held / wall", "", held).atLeast(0.95, ""),
		against.atLeast(1, "x rueidislock"),
		of("the same: fewest / most acquisitions of a worker", "", func(r result) []float64 { return r.fairness }).atLeast(0.9, ""),
		of("the same: longest / median wait", "", func(r result) []float64 { return r.longest }).atMost(3, ""),
		of("the same: median wait", "ms", func(r result) []float64 { return r.median }),
	}, nil
}

// commands is what the server has been asked so far, but for the asking.
func commands(ctx context.Context, c *redis.Client) (n float64, err error) {
	info, err := c.Info(ctx, "commandstats").Result()
	for _, line := range strings.Split(info, "\n") {
		name, stats, ok := strings.Cut(line, ":calls=")
		if !ok || name == "cmdstat_info" || name == "cmdstat_ping" {
			continue
		}
		calls, _, _ := strings.Cut(stats, ",")
		v, err := strconv.ParseFloat(calls, 64)
		if err != nil {
			return 0, err
		}
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" || !strings.Contains("get set time exists zadd zscore pexpire pttl zremrangebyscore", strings.TrimPrefix(name, "cmdstat_")) {
			n += v // the others are called by our scripts
		}
	}
	return n, err
}

func redisWaiters(ctx context.Context, e *env) ([]row, error) {
	c, err := redisClient(e)
	if err != nil {
		return nil, err
	}
	return waiters(ctx, e, "Redis", redislease.New(c), func() (float64, error) { return commands(ctx, c) })
}

// redisNames is the latency of an acquire among few and many live names.
func redisNames(ctx context.Context, e *env) ([]row, error) {
	c, err := redisClient(e)
	if err != nil {
		return nil, err
	}
	many := 1_000_000
	if e.quick {
		many = 10_000
	}
	fill := func(prefix string, n int) (*redislease.Backend, error) {
		b := redislease.New(c, redislease.Prefix(prefix))
		return b, fill(ctx, n, func(ctx context.Context, i int) error {
			g, err := b.Acquire(ctx, leases.Claim{Name: fmt.Sprint("name", i), Owner: "filler", TTL: time.Hour})
			if err == nil && !g.Held {
				err = leases.ErrNotAcquired
			}
			return err
		})
	}
	few, err := fill("few:", 1000)
	if err != nil {
		return nil, err
	}
	small, err := latencies(ctx, e, ours(few))
	if err != nil {
		return nil, err
	}
	lot, err := fill("many:", many)
	if err != nil {
		return nil, err
	}
	large, err := latencies(ctx, e, ours(lot))
	if err != nil {
		return nil, err
	}
	r := row{What: fmt.Sprintf("Redis, acquire among %d live names against 1,000", many), Unit: "µs", Ours: large, Peers: []figure{{"1,000 names", small}}, Figure: large / small}
	return []row{r.atMost(1.3, "x")}, c.FlushDB(ctx).Err()
}

func redisSlots(ctx context.Context, e *env) ([]row, error) {
	c, err := redisClient(e)
	if err != nil {
		return nil, err
	}
	r, err := slots(ctx, e, "Redis", redislease.New(c))
	if err != nil {
		return nil, err
	}
	return []row{r.atMost(2, "x")}, nil
}

// fill calls f(0) to f(n-1) from many goroutines.
func fill(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	const goroutines = 64
	var (
		all  sync.WaitGroup
		errs = make([]error, goroutines)
	)
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = f(ctx, i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
