// Package pglease keeps leases and semaphores in Postgres 13 or newer, in the
// table sm_lease.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	if err != nil { … }
//	leases.Configure(pglease.New(pool))
//
// migrations.Up creates the table. A role needs SELECT, INSERT and UPDATE on
// it. The table is found by the search_path: set that in the connection string
// to keep two applications in one database apart.
//
// Each operation is one statement and one round trip, by the server's clock. A
// refused attempt only reads. An acquire is as durable as the server's
// settings make it; a release does not wait for the disk.
//
// It works with any default_transaction_isolation, and behind PgBouncer in
// transaction mode with the pool's settings for that, such as
// default_query_exec_mode=exec in the connection string.
//
// Writes to the same database can be made to commit only while a lease is
// held: see [Guard]. After a fail-over to a standby that lagged, a lease that
// is held may be granted again, with a larger fence all the same.
package pglease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simple-module/core/leases"
)

// Backend keeps leases and semaphores in Postgres. It is safe for concurrent
// use. It does not close the pool.
type Backend struct {
	pool    *pgxpool.Pool
	timeout time.Duration
}

// Option changes a Backend from its defaults.
type Option func(*Backend)

const defaultTimeout = 5 * time.Second

// Timeout bounds one operation, with the wait for a connection of the pool,
// when ctx does not end it sooner. The default is 5 s; 0 or less is the
// default.
func Timeout(d time.Duration) Option {
	return func(b *Backend) {
		if d > 0 {
			b.timeout = d
		}
	}
}

// New returns a backend on p. The table sm_lease must exist.
func New(p *pgxpool.Pool, opts ...Option) *Backend {
	b := &Backend{pool: p, timeout: defaultTimeout}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	return b
}

// lockTimeout bounds the wait for a row that another transaction has locked: a
// grant of the same name for a moment, a Guard for as long as its caller
// likes. An attempt takes that for busy; a refresh or release is an error.
const lockTimeout = "200ms"

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	query, args := acquireLeaseSQL, []any{c.Name, c.Owner, c.TTL.Milliseconds(), lockTimeout}
	if c.Slots > 0 {
		query, args = acquireSemaphoreSQL, append(args, c.Slots)
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	for {
		var (
			fence, left *int64
			otherKind   bool
			others      int
		)
		err := b.do(ctx, func(ctx context.Context) error {
			return b.pool.QueryRow(ctx, query, args...).Scan(&fence, &otherKind, &others, &left)
		})
		switch {
		case hasCode(err, lockNotAvailable):
			// Locked by another transaction: busy, unless it is this owner's
			// own acquires that queue up.
			var own bool
			err = b.do(ctx, func(ctx context.Context) error {
				return b.pool.QueryRow(ctx, ownSQL, c.Name, c.Owner).Scan(&own)
			})
			if err == nil && !own {
				return leases.Grant{}, nil
			}
			if err != nil {
				return leases.Grant{}, explain(err)
			}
		case err != nil:
			return leases.Grant{}, explain(err)
		case fence != nil:
			return leases.Grant{Held: true, Fence: *fence}, nil
		case otherKind:
			return leases.Grant{}, c.KindError()
		case others >= max(c.Slots, 1):
			return leases.Grant{RetryAfter: time.Duration(max(*left, 1)) * time.Millisecond}, nil
		}
		// Another grant of the name was faster, and left room for this one.
		if err := pause(ctx); err != nil {
			return leases.Grant{}, explain(err)
		}
	}
}

// Refresh implements leases.Backend.
func (b *Backend) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (bool, error) {
	ttl, err := leases.CheckTTL(ttl)
	if err != nil {
		return false, err
	}
	return b.change(ctx, h, refreshSQL, ttl.Milliseconds(), lockTimeout)
}

// Release implements leases.Backend.
func (b *Backend) Release(ctx context.Context, h leases.Hold) (bool, error) {
	return b.change(ctx, h, releaseSQL, lockTimeout)
}

func (b *Backend) change(ctx context.Context, h leases.Hold, query string, more ...any) (changed bool, err error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	err = b.do(ctx, func(ctx context.Context) error {
		tag, err := b.pool.Exec(ctx, query, append([]any{h.Name, h.Owner, h.Fence, h.Slots}, more...)...)
		changed = tag.RowsAffected() > 0
		return err
	})
	return changed && err == nil, explain(err)
}

// do runs one statement in bounded time. One that Postgres has given up, to
// keep transactions serializable or out of a deadlock, is tried again.
func (b *Backend) do(caller context.Context, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, b.timeout)
	defer cancel()
	for {
		err := statement(ctx)
		if hasCode(err, serializationFailure) || hasCode(err, deadlockDetected) {
			if pause(ctx) == nil {
				continue
			}
		}
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return caller.Err()
		case ctx.Err() != nil:
			return fmt.Errorf("no answer for %v", b.timeout)
		}
		return err
	}
}

// pause lets others finish before the next try.
func pause(ctx context.Context) error {
	select {
	case <-time.After(rand.N(2 * time.Millisecond)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The codes are in the appendix "PostgreSQL Error Codes".
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	undefinedTable       = "42P01"
)

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}

// explain adds what to do about a table that is not there.
func explain(err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case hasCode(err, undefinedTable):
		return &failure{`postgres: relation "sm_lease" does not exist (run: make migrate, or migrations.Up)`, err}
	case hasCode(err, lockNotAvailable):
		return &failure{"postgres: the hold's row is locked by another transaction (a Guard, most likely)", err}
	case errors.As(err, &pg):
		return &failure{fmt.Sprintf("postgres: %s (SQLSTATE %s)", pg.Message, pg.Code), err}
	}
	return fmt.Errorf("postgres: %w", err)
}

// failure has a text of its own around the driver's error.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// Guard makes tx commit only while h is held: call it in the transaction,
// before its writes or after them. It locks the row of h's hold until tx ends
// and then checks, by the server's clock, that the hold is live, with h's owner
// and fence. If it expires later, nobody is granted it before tx has ended:
// attempts are told that it is busy.
//
// An error that matches leases.ErrLost says that the hold is over, or is not in
// this database: roll back. So does any other error; in a transaction that is
// repeatable read or serializable that may be a serialization failure (40001)
// when the hold was refreshed since it began.
//
// h's own Refresh and Release wait for tx too, for 200 ms, and then fail:
// KeepAlive tries again until the deadline. Keep tx shorter than the TTL.
func Guard(ctx context.Context, tx pgx.Tx, h *leases.Handle) error {
	if h == nil {
		return fmt.Errorf("%w: guard: handle must not be nil", leases.ErrInvalid)
	}
	if h.Deadline().IsZero() { // R8: this process considers it over
		return fmt.Errorf("%w: guard %q: it is not held", leases.ErrLost, h.Name())
	}
	var live bool
	if err := tx.QueryRow(ctx, guardSQL, h.Name(), h.Token(), h.Fence()).Scan(&live); err != nil {
		return fmt.Errorf("leases: guard %q: %w", h.Name(), explain(err))
	}
	if !live {
		return fmt.Errorf("%w: guard %q: this database has no live hold of its owner and fence", leases.ErrLost, h.Name())
	}
	return nil
}
