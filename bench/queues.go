package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// load is what is put into a queue, and how it is worked on.
type load struct {
	Queue     string // asynq, or river on Postgres
	Processes int
	Workers   int // of each process

	Slots      int           // 0: a lease; -1: no middleware
	MaxWaiting int           // 0: the default
	Wait       time.Duration // 0: the default
	Poll       time.Duration // DelayedTaskCheckInterval or FetchPollInterval; 0: the default

	tasks []task
}

type task struct {
	Key   string        `json:"key"`
	Takes time.Duration `json:"takes"`
}

// Kind implements river.JobArgs.
func (task) Kind() string { return "bench_task" }

// done is what a worker process prints of each task that it has run, and at
// last, without a key, of the tasks that it has put back.
type done struct {
	Key          string
	Began, Ended int64 // ns
	Reschedules  int
}

// outcome is how a load went.
type outcome struct {
	ran         []done
	wall        time.Duration // from the start of the workers to the last task
	reschedules int
	rowUpdates  int // of River
	lost        int // archived or discarded, or not run in time
}

const loadVariable = "BENCH_LOAD"

// run puts the tasks into the queue and has processes of their own work on
// them.
func (l load) run(ctx context.Context, e *env) (o outcome, err error) {
	pool, err := emptyQueues(ctx, e)
	if err != nil {
		return o, err
	}
	defer pool.Close()
	if err := enqueue(ctx, e, pool, l); err != nil {
		return o, err
	}
	updated, err := rowUpdates(ctx, pool)
	if err != nil {
		return o, err
	}
	config, err := json.Marshal(l)
	if err != nil {
		return o, err
	}
	var children []*child
	for range l.Processes {
		c, err := startChild("queue", "", loadVariable+"="+string(config))
		if err != nil {
			return o, err
		}
		children = append(children, c)
		var ready bool
		if err := c.hear(&ready); err != nil {
			return o, err
		}
	}
	began := time.Now()
	ran := make(chan done, 2*len(l.tasks))
	errs := make(chan error, l.Processes)
	for _, c := range children {
		if err := c.say("go"); err != nil {
			return o, err
		}
		go func() {
			for {
				var d done
				if err := c.hear(&d); err != nil {
					errs <- err
					return
				}
				ran <- d
				if d.Key == "" {
					return
				}
			}
		}()
	}
	limit := time.After(2 * time.Minute)
	for len(o.ran) < len(l.tasks) {
		select {
		case d := <-ran:
			o.ran = append(o.ran, d)
			continue
		case err := <-errs:
			return o, err
		case <-limit:
		}
		break
	}
	o.wall = time.Since(began)
	o.lost = len(l.tasks) - len(o.ran)
	for _, c := range children {
		c.in.Close() // it shuts down, and tells its reschedules
	}
	for range children {
		o.reschedules += (<-ran).Reschedules
	}
	for _, c := range children {
		if err := c.cmd.Wait(); err != nil {
			return o, err
		}
	}
	then, err := rowUpdates(ctx, pool)
	o.rowUpdates = then - updated
	return o, err
}

// rowUpdates is River's so far.
func rowUpdates(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	time.Sleep(time.Second) // other sessions' statistics come with a delay
	if _, err := pool.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
		return 0, err
	}
	err = pool.QueryRow(ctx, "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables WHERE relname = 'river_job'").Scan(&n)
	return n, err
}

// last is when the last task of some keys ended, from the first that began.
func (o outcome) last(keys func(string) bool) time.Duration {
	first, end := int64(math.MaxInt64), int64(0)
	for _, d := range o.ran {
		first = min(first, d.Began)
		if keys(d.Key) {
			end = max(end, d.Ended)
		}
	}
	return time.Duration(max(end-first, 0))
}

// most is how many tasks of a key ran at once.
func (o outcome) most(key string) (most int) {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, d := range o.ran {
		if d.Key == key {
			edges = append(edges, edge{d.Began, 1}, edge{d.Ended, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step)) })
	now := 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}

func tasks(n int, key string, takes time.Duration) []task {
	return slices.Repeat([]task{{key, takes}}, n)
}

func shuffle(t []task) { rand.Shuffle(len(t), func(i, j int) { t[i], t[j] = t[j], t[i] }) }

var queues = []string{"asynq", "river"}

// limitEqualToTheWorkers is case 23: a limit that never holds anything up.
func limitEqualToTheWorkers(ctx context.Context, e *env) (rows []row, err error) {
	for _, queue := range queues {
		n := 2000
		if e.quick {
			n = 200
		}
		of := func(slots int) func(context.Context) (float64, error) {
			return func(ctx context.Context) (float64, error) {
				l := load{Queue: queue, Processes: 1, Workers: 20, Slots: slots, tasks: tasks(n, "all", 20*time.Millisecond)}
				o, err := l.run(ctx, e)
				if err == nil && o.lost > 0 {
					err = fmt.Errorf("%d tasks were lost", o.lost)
				}
				return float64(n) / o.last(func(string) bool { return true }).Seconds(), err
			}
		}
		samples := []sample{{"with it", of(20)}, {"without", of(-1)}}
		medians, ratios, err := inTurns(ctx, e.runs, samples...)
		if err != nil {
			return nil, err
		}
		r := row{What: queue + ", a limit equal to the 20 workers, tasks of 20 ms (case 23)", Unit: "/s", Ours: medians[0], Peers: peers(samples, medians), Figure: ratios[1]}
		rows = append(rows, r.atLeast(0.95, "of the run without the middleware"))
	}
	return rows, nil
}

// storm is two hundred tasks with one key.
func storm(ctx context.Context, e *env) (rows []row, err error) {
	for _, queue := range queues {
		var took, updates []float64
		lost := 0
		for range e.runs {
			l := load{Queue: queue, Processes: 1, Workers: 20, MaxWaiting: 20, Wait: 10 * time.Second, tasks: tasks(200, "one", 20*time.Millisecond)}
			o, err := l.run(ctx, e)
			if err != nil {
				return nil, err
			}
			took = append(took, o.last(func(string) bool { return true }).Seconds())
			updates = append(updates, float64(o.rowUpdates))
			lost += o.lost
		}
		note := "MaxWaiting(20), Wait(10s)"
		r := row{What: queue + ", 200 tasks of 20 ms with one key, 20 workers", Unit: "s", Ours: median(took), Figure: median(took), Note: note}
		rows = append(rows, r.atMost(5, "s"))
		if queue == "river" {
			rows = append(rows, row{What: "the same: row updates of River", Ours: median(updates), Figure: median(updates)}.atMost(450, ""))
		}
		rows = append(rows, row{What: "the same: tasks lost, in all runs", Ours: float64(lost), Figure: float64(lost)}.atMost(0, ""))
		l := load{Queue: queue, Processes: 1, Workers: 20, tasks: tasks(200, "one", 20*time.Millisecond)}
		o, err := l.run(ctx, e)
		if err != nil {
			return nil, err
		}
		seconds := o.last(func(string) bool { return true }).Seconds()
		rows = append(rows, row{What: "the same with the middleware's defaults, once", Unit: "s", Ours: seconds, Figure: seconds, Note: fmt.Sprintf("%d reschedules, %d not run in two minutes", o.reschedules, o.lost)})
	}
	return rows, nil
}

// hotHost is a host with many tasks among ten others.
func hotHost(ctx context.Context, e *env) (rows []row, err error) {
	const slots = 4
	takes := 50 * time.Millisecond
	hot := func(key string) bool { return key == "hot" }
	others := func(key string) bool { return !hot(key) }
	for _, queue := range queues {
		var busy, away, ratio, most []float64
		lost := 0
		for range e.runs {
			l := load{Queue: queue, Processes: 2, Workers: 16, Slots: slots, Wait: 2 * time.Second, Poll: 100 * time.Millisecond}
			for i := range 10 {
				l.tasks = append(l.tasks, tasks(10, fmt.Sprint("host", i), takes)...)
			}
			shuffle(l.tasks)
			without, err := l.run(ctx, e)
			if err != nil {
				return nil, err
			}
			const n = 400
			l.tasks = append(l.tasks, tasks(n, "hot", takes)...)
			shuffle(l.tasks)
			with, err := l.run(ctx, e)
			if err != nil {
				return nil, err
			}
			busy = append(busy, (n*takes/slots).Seconds()/with.last(hot).Seconds())
			away = append(away, float64(with.reschedules)/n)
			ratio = append(ratio, with.last(others).Seconds()/without.last(others).Seconds())
			most = append(most, float64(with.most("hot")))
			lost += without.lost + with.lost
		}
		note := "2 processes x 16 workers, 400 tasks of 50 ms, 4 slots, and 100 tasks for 10 hosts; Wait(2s), looked at every 100 ms"
		rows = append(rows,
			row{What: queue + ", hot host: its slots busy", Ours: median(busy), Figure: median(busy), Note: note}.atLeast(0.9, ""),
			row{What: "the same: other hosts' tasks done, against a run without it", Ours: median(ratio), Figure: median(ratio)}.atMost(1.5, "x"),
			row{What: "the same: reschedules of a hot task", Ours: median(away), Figure: median(away)}.atMost(2, ""),
			row{What: "the same: most hot tasks at once, in all runs", Ours: slices.Max(most), Figure: slices.Max(most)}.atMost(slots, ""),
			row{What: "the same: tasks lost, in all runs", Ours: float64(lost), Figure: float64(lost)}.atMost(0, ""))
	}
	return rows, nil
}
