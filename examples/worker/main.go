// Command worker does the downloads and imports that examples/web accepts.
// Any number of workers share the work; together they never have more than
// -slots downloads open at one host.
//
// It uses asynq when SM_REDIS_URL is set, else River on SM_DATABASE_URL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/simple-module/core/examples/internal/service"
	"github.com/simple-module/core/leases"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := run(log); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	var o service.WorkOptions
	flag.IntVar(&o.Slots, "slots", 4, "downloads at once from one host, over all workers")
	flag.IntVar(&o.Concurrency, "concurrency", 16, "tasks at once in this process")
	flag.DurationVar(&o.TTL, "ttl", 30*time.Second, "TTL of the leases; they are kept alive while a task runs")
	flag.DurationVar(&o.Drain, "drain", 20*time.Second, "how long tasks may go on after SIGTERM")
	flag.DurationVar(&o.Rescue, "rescue-after", time.Hour, "River: run a job again that has had no end for so long")
	dir := flag.String("dir", "downloads", "folder for the files")
	queue := flag.String("queue", "downloads", "name of the queue")
	from := flag.String("import-from", "", "address that has the datasets, at /datasets/NAME (default: an import lists the downloaded files)")
	importTime := flag.Duration("import-time", 2*time.Second, "how long an import without -import-from takes")
	resolve := make(hosts)
	flag.Var(resolve, "resolve", "HOST=ADDRESS:PORT, connect there for this host (repeatable)")
	flag.Parse()
	if err := check(o, flag.Args()); err != nil {
		return err
	}
	o.Logger = log

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rt, q, err := service.Start(ctx, *queue, log)
	if err != nil {
		return err
	}
	defer rt.Close(context.WithoutCancel(ctx))
	files, err := service.OpenFiles(*dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "worker: %s on %s, %d slots a host, files in %s\n", q.Name(), rt.Kind(), o.Slots, *dir)
	undo := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "worker: finishing the tasks under way; a second signal ends it at once")
		stop()
	})
	defer undo()
	return q.Work(ctx, &service.Handlers{
		Files:      files,
		Client:     resolve.client(),
		ImportFrom: *from,
		ImportTime: *importTime,
		Log:        log,
	}, o)
}

// check refuses at the start what would make every task fail.
func check(o service.WorkOptions, args []string) error {
	switch _, err := leases.CheckTTL(o.TTL); {
	case err != nil:
		return fmt.Errorf("-ttl: %w", err)
	case o.Slots < 1 || o.Slots > leases.MaxSlots:
		return fmt.Errorf("-slots must be 1 to %d, got %d", leases.MaxSlots, o.Slots)
	case o.Concurrency < 1:
		return fmt.Errorf("-concurrency must be 1 or more, got %d", o.Concurrency)
	case o.Drain < 0 || o.Rescue <= 0:
		return fmt.Errorf("-drain must be 0 or more and -rescue-after more than 0, got %v and %v", o.Drain, o.Rescue)
	case len(args) > 0:
		return fmt.Errorf("there are no arguments, got %q", args)
	}
	return nil
}

// hosts is where to connect for a host name, instead of asking DNS.
type hosts map[string]string

func (h hosts) String() string { return "" }

func (h hosts) Set(s string) error {
	host, addr, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("must be HOST=ADDRESS:PORT")
	}
	h[host] = addr
	return nil
}

func (h hosts) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	dial := (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, _, err := net.SplitHostPort(addr); err == nil && h[host] != "" {
			addr = h[host]
		}
		return dial(ctx, network, addr)
	}
	return &http.Client{Transport: transport}
}
