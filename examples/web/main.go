// Command web accepts downloads and imports over HTTP and puts them into the
// queue that examples/worker works on.
//
// It uses asynq when SM_REDIS_URL is set, else River on SM_DATABASE_URL, and
// listens on ADDR (default 127.0.0.1:8080).
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/simple-module/core/examples/internal/service"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := run(log); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	queue := flag.String("queue", "downloads", "name of the queue")
	dir := flag.String("dir", "downloads", "folder with the files, for the index")
	rebuildTime := flag.Duration("rebuild-time", time.Second, "how long a rebuild of the index takes at the least")
	flag.Parse()
	if flag.NArg() > 0 {
		return errors.New("there are no arguments")
	}

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

	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return fmt.Errorf("%w (ADDR must be a free host:port, such as 127.0.0.1:8081)", err)
	}
	s := &server{rt: rt, queue: q, files: files, log: log, rebuildTime: *rebuildTime}
	srv := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(os.Stderr, "web: http://%s, %s on %s\n", listener.Addr(), q.Name(), rt.Kind())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return srv.Shutdown(drain)
}
