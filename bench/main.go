// Command bench measures the leases against their peers, on the servers that
// SM_TEST_REDIS_URL and SM_TEST_DATABASE_URL name: every figure beside its
// peers' in the same run, in turns, with the same client settings. It prints a
// Markdown table and, as its last line, BENCH and the figures as JSON. The exit
// code says whether it could measure, not whether the goals are reached.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"runtime"
	"time"
)

// benchmark takes one or more figures.
type benchmark struct {
	name string
	run  func(ctx context.Context, e *env) ([]row, error)
}

var benchmarks = []benchmark{
	{"in-process", inProcess},
	{"redis-uncontended", redisUncontended},
	{"redis-handoff", redisHandoff},
	{"redis-fairness", redisFairness},
	{"redis-waiters", redisWaiters},
	{"redis-names", redisNames},
	{"redis-slots", redisSlots},
	{"postgres-uncontended", postgresUncontended},
	{"postgres-handoff", postgresHandoff},
	{"postgres-waiters", postgresWaiters},
	{"postgres-names", postgresNames},
	{"postgres-slots", postgresSlots},
	{"case23", limitEqualToTheWorkers},
	{"storm", storm},
	{"hot-host", hotHost},
}

// env is what the benchmarks share.
type env struct {
	redisURL, databaseURL string
	runs                  int
	quick                 bool // for a look at whether it works
}

// span is how long one run of a benchmark takes.
func (e *env) span(d time.Duration) time.Duration {
	if e.quick {
		return d / 10
	}
	return d
}

func main() {
	log.SetFlags(0)
	e := &env{redisURL: os.Getenv("SM_TEST_REDIS_URL"), databaseURL: os.Getenv("SM_TEST_DATABASE_URL")}
	if e.redisURL == "" || e.databaseURL == "" {
		log.Fatal("bench: SM_TEST_REDIS_URL and SM_TEST_DATABASE_URL must be set; make bench sets them")
	}
	if done, err := runChild(context.Background(), e); done {
		if err != nil {
			log.Fatal("bench: child: ", err)
		}
		return
	}
	only := flag.String("run", "", "only the benchmarks whose names match this regular expression")
	flag.IntVar(&e.runs, "runs", 5, "how often each figure is taken; the median counts")
	flag.BoolVar(&e.quick, "quick", false, "short runs, to see whether it works")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil || e.runs < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	var rows []row
	for _, b := range benchmarks {
		if !match.MatchString(b.name) {
			continue
		}
		began := time.Now()
		got, err := b.run(context.Background(), e)
		if err != nil {
			log.Fatalf("bench: %s: %v", b.name, err)
		}
		log.Printf("%-22s %v", b.name, time.Since(began).Round(100*time.Millisecond))
		for i := range got {
			got[i].Benchmark = b.name
		}
		rows = append(rows, got...)
	}
	fmt.Printf("%d CPUs, %s, servers on the same machine, medians of %d runs.\n\n", runtime.NumCPU(), runtime.Version(), e.runs)
	if err := printTable(os.Stdout, rows); err != nil {
		log.Fatal("bench: ", err)
	}
}
