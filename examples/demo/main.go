// Command demo shows the download service at work: it starts three origin
// servers, one web process and two workers, sends them downloads and imports,
// and checks by the origins' own counts that no host ever had more downloads
// open than its slots.
//
// It runs on SQLite, with nothing to set up; on Redis and asynq when
// SM_REDIS_URL is set; on Postgres and River when SM_DATABASE_URL is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"
)

// What the demo sends.
const (
	slots       = 4
	downloads   = 120
	twice       = 20 // of them are sent a second time
	imports     = 10
	datasets    = 3
	giveUpAfter = 5 * time.Minute
)

// Result is the last line of the demo. MaxPerHost and MaxImportsPerDataset are
// what the origin servers counted.
type Result struct {
	Queue                string  `json:"queue"`
	Backend              string  `json:"backend"`
	Requested            int     `json:"requested"`
	Downloaded           int     `json:"downloaded"`
	Failed               int     `json:"failed"`
	Slots                int     `json:"slots"`
	MaxPerHost           int     `json:"max_per_host"`
	MaxImportsPerDataset int     `json:"max_imports_per_dataset"`
	Seconds              float64 `json:"seconds"`
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: demo\nSM_REDIS_URL or SM_DATABASE_URL choose the store; without them it is a temporary SQLite file.")
	}
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, giveUpAfter, errors.New("the demo took too long"))
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "leases-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	origins, err := startOrigins()
	if err != nil {
		return err
	}
	defer origins.close()

	fmt.Println("building web and worker")
	fleet, err := startFleet(ctx, dir, origins)
	if err != nil {
		return err
	}
	defer fleet.stop()

	start := time.Now()
	sent, err := fleet.send(ctx, origins)
	if err != nil {
		return err
	}
	status, err := fleet.await(ctx, origins, sent.tasks())
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	if err := fleet.stop(); err != nil {
		return err
	}
	good, wrong := origins.check(filepath.Join(dir, "downloads"))

	result := Result{
		Queue: status.Queue, Backend: status.Backend,
		Requested: sent.downloads, Downloaded: good, Failed: status.Failed,
		Slots: slots, MaxPerHost: origins.maxPerHost(), MaxImportsPerDataset: origins.maxPerDataset(),
		Seconds: float64(int(seconds*100)) / 100,
	}
	printTable(origins, sent, result)
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	fmt.Printf("RESULT %s\n", line)
	return errors.Join(wrong, result.check(origins, sent))
}

// check returns what is not as it must be.
func (r Result) check(o *origins, s sent) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(r.Requested == downloads+twice, "%d downloads were accepted, not %d", r.Requested, downloads+twice)
	must(r.Downloaded == downloads, "%d files are there and whole, not %d", r.Downloaded, downloads)
	must(r.Failed == 0, "%d tasks failed", r.Failed)
	must(r.MaxPerHost <= slots, "a host had %d downloads open at once, more than %d", r.MaxPerHost, slots)
	must(r.MaxImportsPerDataset <= 1, "a dataset had %d imports at once", r.MaxImportsPerDataset)
	must(o.imports() == s.imports, "%d imports ran, not %d", o.imports(), s.imports)
	return errors.Join(errs...)
}

func printTable(o *origins, s sent, r Result) {
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 2, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "origin\trequests\tmost at once\tslots\t\n")
	for _, host := range o.hosts {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", host.name, host.total, host.most, slots)
	}
	for _, d := range o.sortedDatasets() {
		fmt.Fprintf(w, "import %s\t%d\t%d\t1\t\n", d.name, d.total, d.most)
	}
	w.Flush()
	fmt.Printf("\n%d downloads requested, %d files whole; %d imports accepted, %d answered with 409; %.1f s on %s and %s\n",
		r.Requested, r.Downloaded, s.imports, s.refused, r.Seconds, r.Queue, r.Backend)
}
