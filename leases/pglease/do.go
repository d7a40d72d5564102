package pglease

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is a pool, or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

type statement struct {
	sql  string
	args []any
}

// ask sends the statements in one round trip and one transaction, and scans the
// row of the last.
func ask(ctx context.Context, q querier, statements []statement, row ...any) error {
	last := statements[len(statements)-1]
	if len(statements) == 1 {
		return q.QueryRow(ctx, last.sql, last.args...).Scan(row...)
	}
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := q.SendBatch(ctx, &batch)
	for range len(statements) - 1 {
		if _, err := results.Exec(); err != nil {
			results.Close()
			return err
		}
	}
	err := results.QueryRow().Scan(row...)
	if closed := results.Close(); err == nil {
		err = closed // the transaction commits there
	}
	return err
}

// How often an attempt is made while a lock or a faster attempt is in its way,
// and how often an operation while Postgres gives it up. All but the first wait
// in line, where few things can come between: a Guard may still be in the way.
const (
	attempts = 3
	tries    = 5
)

// retry makes an operation again that Postgres gave up, in a transaction that
// can't be given up for want of serializability.
func (b *Backend) retry(ctx context.Context, operation func(querier) error) error {
	err := operation(b.pool)
	for n := 1; n < tries && (hasCode(err, serializationFailure) || hasCode(err, deadlockDetected)); n++ {
		select {
		case <-time.After(rand.N(time.Duration(n) * time.Millisecond)):
		case <-ctx.Done():
			return ctx.Err()
		}
		err = pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return operation(tx)
		})
	}
	return err
}

// bounded gives an operation its time, and says what became of it.
func (b *Backend) bounded(caller context.Context, operation func(context.Context) error) error {
	if b.invalid != nil {
		return b.invalid
	}
	ctx, cancel := context.WithTimeout(caller, b.timeout)
	defer cancel()
	err := operation(ctx)
	switch {
	case err == nil:
		return nil
	case caller.Err() != nil:
		return explain(caller.Err())
	case ctx.Err() != nil:
		return &timeoutError{b.timeout, err}
	}
	return explain(err)
}
