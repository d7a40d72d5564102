package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	asynqlease "github.com/simple-module/core/middleware/asynq"
)

type asynqQueue struct {
	redis     redis.UniversalClient
	client    *asynq.Client
	inspector *asynq.Inspector
	queue     string
}

func openAsynq(r redis.UniversalClient, queue string) *asynqQueue {
	return &asynqQueue{
		redis:     r,
		client:    asynq.NewClientFromRedisClient(r),
		inspector: asynq.NewInspectorFromRedisClient(r),
		queue:     queue,
	}
}

func (q *asynqQueue) Name() string { return "asynq" }

func (q *asynqQueue) Add(ctx context.Context, t Task) error {
	payload, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = q.client.EnqueueContext(ctx, asynq.NewTask(t.Kind(), payload),
		asynq.Queue(q.queue), asynq.Timeout(taskTimeout), asynq.Retention(time.Hour))
	return err
}

func (q *asynqQueue) Counts(context.Context) (Counts, error) {
	queues, err := q.inspector.Queues()
	if err != nil || !slices.Contains(queues, q.queue) { // nothing was ever added
		return Counts{}, err
	}
	info, err := q.inspector.GetQueueInfo(q.queue)
	if err != nil {
		return Counts{}, err
	}
	return Counts{
		Waiting: info.Pending + info.Scheduled + info.Retry,
		Running: info.Active,
		Done:    info.Completed,
		Failed:  info.Archived,
	}, nil
}

func (q *asynqQueue) Work(ctx context.Context, h *Handlers, o WorkOptions) error {
	cfg := asynq.Config{
		Concurrency:     o.Concurrency,
		Queues:          map[string]int{q.queue: 1},
		ShutdownTimeout: o.Drain,
		Logger:          asynqLogger{o.Logger},
	}
	asynqlease.Configure(&cfg) // a busy task is not a failed one

	// The host's slot is the outer guard and the URL's lease the inner one, so
	// that the handler's fence is the lease's.
	host := asynqlease.Semaphore(asynqlease.HostKey("host", "url"), o.Slots, o.TTL, asynqlease.KeepAlive())
	file := asynqlease.Lease(asynqlease.ArgsKey("download", "url"), o.TTL, asynqlease.KeepAlive())
	dataset := asynqlease.Lease(func(_ context.Context, t *asynq.Task) (string, error) {
		i, err := decode[Import](t)
		return ImportKey(i.Dataset), err
	}, o.TTL, asynqlease.KeepAlive())

	mux := asynq.NewServeMux()
	mux.Handle(Download{}.Kind(), host(file(handle(h.Download))))
	mux.Handle(Import{}.Kind(), dataset(handle(h.Import)))

	srv := asynq.NewServerFromRedisClient(q.redis, cfg)
	if err := srv.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	srv.Shutdown()
	return nil
}

func handle[T Task](do func(context.Context, T) error) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		args, err := decode[T](t)
		if err != nil {
			return err
		}
		return do(ctx, args)
	})
}

// decode returns an error that no retry can mend.
func decode[T Task](t *asynq.Task) (T, error) {
	var args T
	if err := json.Unmarshal(t.Payload(), &args); err != nil {
		return args, fmt.Errorf("%s task: %w: %w", t.Type(), err, asynq.SkipRetry)
	}
	return args, nil
}

// asynqLogger leaves out asynq's lines below warnings.
type asynqLogger struct{ log *slog.Logger }

func (asynqLogger) Debug(...any)     {}
func (asynqLogger) Info(...any)      {}
func (l asynqLogger) Warn(a ...any)  { l.log.Warn(fmt.Sprint(a...)) }
func (l asynqLogger) Error(a ...any) { l.log.Error(fmt.Sprint(a...)) }
func (l asynqLogger) Fatal(a ...any) { l.log.Error(fmt.Sprint(a...)); os.Exit(1) }
