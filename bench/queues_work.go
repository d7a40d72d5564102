package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/leases/redislease"
	asynqlease "github.com/simple-module/core/middleware/asynq"
	riverlease "github.com/simple-module/core/middleware/river"
	"github.com/simple-module/core/migrations"
)

// emptyQueues leaves nothing in Redis and in the database but tables.
func emptyQueues(ctx context.Context, e *env) (*pgxpool.Pool, error) {
	c, err := redisClient(e)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	pool, err := pgPool(ctx, e)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		return nil, err
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	return pool, migrations.Up(ctx, stdlib.OpenDBFromPool(pool), "postgres")
}

func asynqRedis(e *env) (asynq.RedisClientOpt, error) {
	opts, err := redis.ParseURL(e.redisURL)
	if err != nil {
		return asynq.RedisClientOpt{}, err
	}
	return asynq.RedisClientOpt{Addr: opts.Addr, DB: opts.DB, Password: opts.Password}, nil
}

func enqueue(ctx context.Context, e *env, pool *pgxpool.Pool, l load) error {
	if l.Queue == "river" {
		c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
		if err != nil {
			return err
		}
		var params []river.InsertManyParams
		for _, t := range l.tasks {
			params = append(params, river.InsertManyParams{Args: t})
		}
		_, err = c.InsertMany(ctx, params)
		return err
	}
	opts, err := asynqRedis(e)
	if err != nil {
		return err
	}
	c := asynq.NewClient(opts)
	defer c.Close()
	for _, t := range l.tasks {
		payload, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := c.EnqueueContext(ctx, asynq.NewTask(t.Kind(), payload)); err != nil {
			return err
		}
	}
	return nil
}

// recorder prints what has been run.
type recorder struct {
	mu          sync.Mutex
	out         *json.Encoder
	reschedules atomic.Int64
}

func (r *recorder) print(d done) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.out.Encode(d); err != nil {
		panic(err)
	}
}

func (r *recorder) work(t task) {
	began := time.Now().UnixNano()
	time.Sleep(t.Takes)
	r.print(done{Key: t.Key, Began: began, Ended: time.Now().UnixNano()})
}

// queueChild works on a queue from when it reads a line until its input ends.
func queueChild(ctx context.Context, e *env) error {
	var l load
	if err := json.Unmarshal([]byte(os.Getenv(loadVariable)), &l); err != nil {
		return err
	}
	r := &recorder{out: json.NewEncoder(os.Stdout)}
	prepare := asynqWorkers
	if l.Queue == "river" {
		prepare = riverWorkers
	}
	start, stop, err := prepare(ctx, e, l, r)
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("true")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	_, _ = in.ReadString('\n')
	err = stop()
	r.print(done{Reschedules: int(r.reschedules.Load())})
	return err
}

func asynqWorkers(_ context.Context, e *env, l load, r *recorder) (start, stop func() error, err error) {
	opts, err := asynqRedis(e)
	if err != nil {
		return nil, nil, err
	}
	c, err := redisClient(e)
	if err != nil {
		return nil, nil, err
	}
	cfg := asynq.Config{Concurrency: l.Workers, LogLevel: asynq.ErrorLevel, DelayedTaskCheckInterval: l.Poll}
	if l.Slots >= 0 {
		asynqlease.Configure(&cfg)
	}
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		if !asynqlease.IsBusy(err) {
			fmt.Fprintln(os.Stderr, "bench: a task failed:", err)
		}
		r.reschedules.Add(1)
	})
	var handler asynq.Handler = asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var args task
		if err := json.Unmarshal(t.Payload(), &args); err != nil {
			return err
		}
		r.work(args)
		return nil
	})
	var options []asynqlease.Option
	if l.MaxWaiting > 0 {
		options = append(options, asynqlease.MaxWaiting(l.MaxWaiting))
	}
	if l.Wait > 0 {
		options = append(options, asynqlease.Wait(l.Wait))
	}
	options = append(options, asynqlease.On(redislease.New(c)))
	key := asynqlease.ArgsKey("bench", "key")
	switch {
	case l.Slots > 0:
		handler = asynqlease.Semaphore(key, l.Slots, time.Minute, options...)(handler)
	case l.Slots == 0:
		handler = asynqlease.Lease(key, time.Minute, options...)(handler)
	}
	server := asynq.NewServer(opts, cfg)
	return func() error { return server.Start(handler) }, func() error { server.Shutdown(); return nil }, nil
}

type riverWorker struct {
	river.WorkerDefaults[task]
	*recorder
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[task]) error {
	w.work(job.Args)
	return nil
}

// snoozes counts what the middlewares inside it put back.
type snoozes struct {
	river.MiddlewareDefaults
	*recorder
}

func (s *snoozes) Work(ctx context.Context, _ *rivertype.JobRow, do func(context.Context) error) error {
	err := do(ctx)
	if snooze := (*rivertype.JobSnoozeError)(nil); errors.As(err, &snooze) {
		s.reschedules.Add(1)
	}
	return err
}

func riverWorkers(ctx context.Context, e *env, l load, r *recorder) (start, stop func() error, err error) {
	pool, err := pgPool(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	var options []riverlease.Option
	if l.MaxWaiting > 0 {
		options = append(options, riverlease.MaxWaiting(l.MaxWaiting))
	}
	if l.Wait > 0 {
		options = append(options, riverlease.Wait(l.Wait))
	}
	options = append(options, riverlease.On(pglease.New(pool)))
	key := riverlease.ArgsKey("bench", "key")
	middleware := []rivertype.Middleware{&snoozes{recorder: r}}
	switch {
	case l.Slots > 0:
		middleware = append(middleware, riverlease.Semaphore(key, l.Slots, time.Minute, options...))
	case l.Slots == 0:
		middleware = append(middleware, riverlease.Lease(key, time.Minute, options...))
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{recorder: r})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: l.Workers}}, Workers: workers,
		FetchPollInterval: l.Poll, Middleware: middleware,
	})
	if err != nil {
		return nil, nil, err
	}
	return func() error { return c.Start(ctx) }, func() error { return c.Stop(ctx) }, nil
}
