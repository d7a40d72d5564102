package asynqlease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
	asynqlease "github.com/simple-module/core/middleware/asynq"
)

func runImport(ctx context.Context, _ *asynq.Task) error {
	h, _ := leases.FromContext(ctx)
	return writeDataset(ctx, h.Fence()) // the resource refuses a smaller fence
}

func download(ctx context.Context, _ *asynq.Task) error { return ctx.Err() }

func writeDataset(context.Context, int64) error { return nil }

// One import of a dataset at a time, and four downloads from each host, over
// all processes. Here the queue and the leases are in one Redis.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	leases.Configure(redislease.New(client))

	cfg := asynq.Config{Concurrency: 16}
	asynqlease.Configure(&cfg)
	once := asynqlease.Lease(asynqlease.ArgsKey("import", "dataset"), time.Minute, asynqlease.KeepAlive())
	perHost := asynqlease.Semaphore(asynqlease.HostKey("host", "url"), 4, time.Minute, asynqlease.KeepAlive())

	mux := asynq.NewServeMux()
	mux.Handle("import", once(asynq.HandlerFunc(runImport)))
	mux.Handle("download", perHost(asynq.HandlerFunc(download)))
	if err := asynq.NewServerFromRedisClient(client, cfg).Run(mux); err != nil {
		log.Fatal(err)
	}
}

// A guarded handler in a test: without a server, on the in-process backend.
func ExampleLease() {
	once := asynqlease.Lease(asynqlease.ArgsKey("import", "dataset"), time.Minute, asynqlease.On(leases.NewInProcess()))
	handler := once(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		h, _ := leases.FromContext(ctx)
		fmt.Println("holding", h.Name())
		return nil
	}))
	err := handler.ProcessTask(context.Background(), asynq.NewTask("import", []byte(`{"dataset": 42}`)))
	fmt.Println(err)

	// Output:
	// holding import:42
	// <nil>
}

// One task at a time for each tenant, and ten in all.
func ExampleSemaphore_stacked() {
	on := asynqlease.On(leases.NewInProcess())
	perTenant := asynqlease.Lease(asynqlease.ArgsKey("tenant", "tenant"), time.Minute, on)
	inAll := asynqlease.Semaphore(func(context.Context, *asynq.Task) (string, error) { return "reports", nil }, 10, time.Minute, on)

	mux := asynq.NewServeMux()
	mux.Use(perTenant, inAll) // the first is the outermost
	mux.HandleFunc("report", func(ctx context.Context, t *asynq.Task) error {
		fmt.Printf("%s %s\n", t.Type(), t.Payload())
		return nil
	})
	err := mux.ProcessTask(context.Background(), asynq.NewTask("report", []byte(`{"tenant": "acme"}`)))
	fmt.Println(err)

	// Output:
	// report {"tenant": "acme"}
	// <nil>
}

// An error handler that does not report busy tasks as failures.
func ExampleIsBusy() {
	cfg := asynq.Config{
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, t *asynq.Task, err error) {
			if asynqlease.IsBusy(err) {
				return // it has not run, and comes back
			}
			log.Printf("task %s failed: %v", t.Type(), err)
		}),
	}
	asynqlease.Configure(&cfg)
}
