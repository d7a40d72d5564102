package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/simple-module/core/leases/pglease"
	"github.com/simple-module/core/migrations"
)

// postgres returns a pool on a database with the table.
func postgres(ctx context.Context, e *env) (*pgxpool.Pool, error) {
	pool, err := pgPool(ctx, e)
	if err != nil {
		return nil, err
	}
	return pool, migrations.Up(ctx, stdlib.OpenDBFromPool(pool), "postgres")
}

func postgresUncontended(ctx context.Context, e *env) ([]row, error) {
	if _, err := postgres(ctx, e); err != nil {
		return nil, err
	}
	var rows []row
	for _, goroutines := range []int{1, 16} {
		samples, err := lockers(ctx, e, func(_ string, lock locker) func(context.Context) (float64, error) { return pairs(e, lock, goroutines) },
			"ours on Postgres", "pglock", "advisory lock")
		if err != nil {
			return nil, err
		}
		medians, ratios, err := inTurns(ctx, e.runs, samples...)
		if err != nil {
			return nil, err
		}
		r := row{
			What: fmt.Sprintf("Postgres, uncontended acquire+release, %d goroutines", goroutines), Unit: "/s",
			Ours: medians[0], Peers: peers(samples, medians), Figure: ratios[1],
		}
		rows = append(rows, r.atLeast(2, "x pglock"))
	}
	return rows, nil
}

func postgresHandoff(ctx context.Context, e *env) ([]row, error) {
	if _, err := postgres(ctx, e); err != nil {
		return nil, err
	}
	n := 60
	if e.quick {
		n = 5
	}
	var samples []sample
	for _, library := range []string{"ours on Postgres", "advisory lock"} {
		samples = append(samples, sample{library, func(ctx context.Context) (float64, error) { return handoffs(ctx, e, library, n) }})
	}
	// pglock asks again after its lease of 20 s, or its heartbeat's 5 s: it is
	// taken once.
	medians, ratios, err := inTurns(ctx, e.runs, samples...)
	if err != nil {
		return nil, err
	}
	r := row{What: "Postgres, hand-off to a waiter in another process", Unit: "ms", Ours: medians[0], Peers: peers(samples, medians)}
	absolute, ratio := r, r
	absolute.Figure, ratio.Figure = medians[0], ratios[1]
	ratio.What = "the same: against a session advisory lock"
	return []row{absolute.atMost(2, "ms"), ratio.atMost(4, "x advisory lock")}, nil
}

// transactions is how many the database has committed.
func transactions(ctx context.Context, pool *pgxpool.Pool) func() (float64, error) {
	return func() (n float64, err error) {
		if _, err = pool.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
			return 0, err
		}
		err = pool.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
		return n, err
	}
}

func postgresWaiters(ctx context.Context, e *env) ([]row, error) {
	pool, err := postgres(ctx, e)
	if err != nil {
		return nil, err
	}
	return waiters(ctx, e, "Postgres", pglease.New(pool), transactions(ctx, pool))
}

// postgresNames is the latency of an acquire among few and many live names.
func postgresNames(ctx context.Context, e *env) ([]row, error) {
	pool, err := postgres(ctx, e)
	if err != nil {
		return nil, err
	}
	lock := ours(pglease.New(pool))
	many := 1_000_000
	if e.quick {
		many = 10_000
	}
	fill := func(n int) error {
		// As the backend writes them, in one statement.
		_, err := pool.Exec(ctx, `INSERT INTO sm_lease (name, slot, holder, fence, expires_at)
			SELECT 'name' || i, 0, 'filler', i, now() + interval '1 hour' FROM generate_series(1, $1) i ON CONFLICT DO NOTHING`, n)
		if err == nil {
			_, err = pool.Exec(ctx, "VACUUM ANALYZE sm_lease")
		}
		return err
	}
	if _, err := pool.Exec(ctx, "TRUNCATE sm_lease"); err != nil {
		return nil, err
	}
	if err := fill(1000); err != nil {
		return nil, err
	}
	small, err := latencies(ctx, e, lock)
	if err != nil {
		return nil, err
	}
	if err := fill(many); err != nil {
		return nil, err
	}
	time.Sleep(e.span(5 * time.Second)) // the checkpoint that the filling has caused
	large, err := latencies(ctx, e, lock)
	if err != nil {
		return nil, err
	}
	r := row{What: fmt.Sprintf("Postgres, acquire among %d live names against 1,000", many), Unit: "µs", Ours: large, Peers: []figure{{"1,000 names", small}}, Figure: large / small}
	_, err = pool.Exec(ctx, "TRUNCATE sm_lease")
	return []row{r.atMost(1.3, "x")}, err
}

func postgresSlots(ctx context.Context, e *env) ([]row, error) {
	pool, err := postgres(ctx, e)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "TRUNCATE sm_lease"); err != nil {
		return nil, err
	}
	r, err := slots(ctx, e, "Postgres", pglease.New(pool))
	if err != nil {
		return nil, err
	}
	return []row{r.atMost(3, "x")}, nil
}
