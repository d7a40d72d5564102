package service

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/simple-module/core/leases"
	riverlease "github.com/simple-module/core/middleware/river"
)

// riverQueue is River on a driver whose transactions are TTx.
type riverQueue[TTx any] struct {
	driver riverdriver.Driver[TTx]
	insert *river.Client[TTx]
	queue  string
	count  func(ctx context.Context, each func(state string, n int)) error
}

func openRiverPostgres(ctx context.Context, pool *pgxpool.Pool, queue string, log *slog.Logger) (Queue, error) {
	count := func(ctx context.Context, each func(string, int)) error {
		rows, err := pool.Query(ctx, `SELECT state::text, count(*) FROM river_job WHERE queue = $1 GROUP BY state`, queue)
		if err != nil {
			return err
		}
		var state string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { each(state, n); return nil })
		return err
	}
	return openRiver(ctx, riverpgxv5.New(pool), queue, log, count)
}

func openRiverSQLite(ctx context.Context, db *sql.DB, queue string, log *slog.Logger) (Queue, error) {
	count := func(ctx context.Context, each func(string, int)) error {
		rows, err := db.QueryContext(ctx, `SELECT state, count(*) FROM river_job WHERE queue = ? GROUP BY state`, queue)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var state string
			var n int
			if err := rows.Scan(&state, &n); err != nil {
				return err
			}
			each(state, n)
		}
		return rows.Err()
	}
	return openRiver(ctx, riversqlite.New(db), queue, log, count)
}

// openRiver also makes River's tables. A lease keeps the processes that start
// at the same time from doing so at once.
func openRiver[TTx any](ctx context.Context, driver riverdriver.Driver[TTx], queue string, log *slog.Logger, count func(context.Context, func(string, int)) error) (Queue, error) {
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	err = leases.Lease("river:migrate", time.Minute).Do(ctx, func(ctx context.Context) error {
		_, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("river's tables: %w", err)
	}
	insert, err := river.NewClient(driver, &river.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	return &riverQueue[TTx]{driver: driver, insert: insert, queue: queue, count: count}, nil
}

func (q *riverQueue[TTx]) Name() string { return "river" }

func (q *riverQueue[TTx]) Add(ctx context.Context, t Task) error {
	_, err := q.insert.Insert(ctx, t, &river.InsertOpts{Queue: q.queue})
	return err
}

func (q *riverQueue[TTx]) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := q.count(ctx, func(state string, n int) {
		switch rivertype.JobState(state) {
		case rivertype.JobStateRunning:
			c.Running += n
		case rivertype.JobStateCompleted:
			c.Done += n
		case rivertype.JobStateDiscarded, rivertype.JobStateCancelled:
			c.Failed += n
		default:
			c.Waiting += n
		}
	})
	return c, err
}

func (q *riverQueue[TTx]) Work(ctx context.Context, h *Handlers, o WorkOptions) error {
	// The host's slot is the outer guard and the URL's lease the inner one, so
	// that the handler's fence is the lease's.
	host := riverlease.Semaphore(riverlease.HostKey("host", "url"), o.Slots, o.TTL, riverlease.KeepAlive())
	file := riverlease.Lease(riverlease.ArgsKey("download", "url"), o.TTL, riverlease.KeepAlive())
	dataset := riverlease.Lease(func(job *rivertype.JobRow) (string, error) {
		var i Import
		err := json.Unmarshal(job.EncodedArgs, &i)
		return ImportKey(i.Dataset), err
	}, o.TTL, riverlease.KeepAlive())

	workers := river.NewWorkers()
	river.AddWorker(workers, worker[Download]{do: h.Download, guards: []rivertype.WorkerMiddleware{host, file}})
	river.AddWorker(workers, worker[Import]{do: h.Import, guards: []rivertype.WorkerMiddleware{dataset}})

	client, err := river.NewClient(q.driver, &river.Config{
		Queues:               map[string]river.QueueConfig{q.queue: {MaxWorkers: o.Concurrency}},
		Workers:              workers,
		JobTimeout:           min(taskTimeout, o.Rescue),
		RescueStuckJobsAfter: o.Rescue,
		SoftStopTimeout:      o.Drain,
		Logger:               o.Logger,
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Drain+10*time.Second)
	defer cancel()
	return client.Stop(stop)
}

type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	do     func(context.Context, T) error
	guards []rivertype.WorkerMiddleware
}

func (w worker[T]) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return w.guards }

func (w worker[T]) Work(ctx context.Context, job *river.Job[T]) error { return w.do(ctx, job.Args) }
