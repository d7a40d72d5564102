package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/simple-module/core/bootstrap"
)

// Task is a Download or an Import.
type Task interface{ Kind() string }

// Queue is the queue between the web process and the workers.
type Queue interface {
	// Name is "asynq" or "river".
	Name() string
	// Add puts a task into the queue.
	Add(ctx context.Context, t Task) error
	// Counts says how many tasks are where.
	Counts(ctx context.Context) (Counts, error)
	// Work does tasks until ctx ends, and then finishes those under way.
	Work(ctx context.Context, h *Handlers, o WorkOptions) error
}

// Counts says how many tasks are where.
type Counts struct {
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Done    int `json:"done"`
	Failed  int `json:"failed"` // given up by the queue: archived or discarded
}

// WorkOptions are the settings of a worker.
type WorkOptions struct {
	Slots       int           // downloads at once from one host, over all workers
	Concurrency int           // tasks at once in this process
	TTL         time.Duration // of the leases
	Drain       time.Duration // how long tasks under way may go on after ctx ended
	Rescue      time.Duration // River: after this a job without an end is run again
	Logger      *slog.Logger
}

// taskTimeout is how long a task may take in either queue.
const taskTimeout = 30 * time.Minute

// Start opens the store that the environment names, for leases and for the
// queue. Web and worker begin with it. Close the Runtime when done.
func Start(ctx context.Context, queue string, log *slog.Logger) (*bootstrap.Runtime, Queue, error) {
	settings, err := bootstrap.FromEnv()
	if err != nil {
		return nil, nil, err
	}
	settings.Logger = log
	rt, err := bootstrap.Start(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	q, err := Open(ctx, rt, queue, log)
	if err != nil {
		rt.Close(context.WithoutCancel(ctx))
		return nil, nil, err
	}
	return rt, q, nil
}

// Open returns the queue that fits the backend: asynq on Redis, River on
// Postgres or SQLite.
func Open(ctx context.Context, rt *bootstrap.Runtime, queue string, log *slog.Logger) (Queue, error) {
	switch {
	case rt.Redis() != nil:
		return openAsynq(rt.Redis(), queue), nil
	case rt.Pool() != nil:
		return openRiverPostgres(ctx, rt.Pool(), queue, log)
	case rt.SQLite() != nil:
		return openRiverSQLite(ctx, rt.SQLite(), queue, log)
	}
	return nil, errors.New("web and worker are two processes and need a store in common: set SM_REDIS_URL, or SM_DATABASE_URL to postgres://… or sqlite:…")
}
