package pglease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simple-module/core/internal/subscription"
	"github.com/simple-module/core/leases"
)

// Backend keeps leases and semaphores in Postgres. It is safe for concurrent
// use. It does not close the pool.
type Backend struct {
	pool    *pgxpool.Pool
	timeout time.Duration
	schema  string
	invalid error
	sql     *queries

	watched subscription.Set
	freed   freed
	deaf    atomic.Int64 // notifications don't get through: not tried before this time
}

// New returns a backend on p. The table sm_lease must exist.
func New(p *pgxpool.Pool, opts ...Option) *Backend {
	b := &Backend{pool: p, timeout: defaultTimeout}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	b.watched.Run = b.listen
	b.sql = onSearchPath
	if b.schema != "" && b.invalid == nil {
		b.sql = newQueries(b.schema)
	}
	return b
}

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	attempt := statement{b.sql.acquireLease, []any{c.Name, c.Owner, c.TTL.Milliseconds()}}
	if c.Slots > 0 {
		attempt = statement{b.sql.acquireSlot, append(attempt.args, c.Slots)}
	}
	queued := []statement{{b.sql.queue, []any{c.Name, c.Owner, c.Slots}}, attempt}
	first := queued[1:]
	if c.Slots > 0 {
		first = queued // several may be granted at once: none may find the others in its way
	}
	var (
		fence            *int64
		otherKind, again bool
		remaining        int64 // milliseconds
	)
	err = b.bounded(ctx, func(ctx context.Context) error {
		statements := first
		for range attempts {
			err := b.retry(ctx, func(q querier) error {
				return ask(ctx, q, statements, &fence, &otherKind, &again, &remaining)
			})
			if err != nil || !again {
				return err
			}
			statements = queued
		}
		return nil
	})
	switch {
	case hasCode(err, lockNotAvailable):
		return leases.Grant{}, nil
	case err != nil:
		return leases.Grant{}, err
	case fence != nil:
		return leases.Grant{Held: true, Fence: *fence}, nil
	case otherKind:
		return leases.Grant{}, c.KindError()
	}
	return leases.Grant{RetryAfter: time.Duration(max(remaining, 0)) * time.Millisecond}, nil
}

// Refresh implements leases.Backend.
func (b *Backend) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (bool, error) {
	ttl, err := leases.CheckTTL(ttl)
	if err != nil {
		return false, err
	}
	if err := h.Check(); err != nil {
		return false, err
	}
	var tag pgconn.CommandTag
	err = b.bounded(ctx, func(ctx context.Context) error {
		return b.retry(ctx, func(q querier) (err error) {
			tag, err = q.Exec(ctx, b.sql.refresh, h.Name, h.Owner, h.Fence, h.Slots, ttl.Milliseconds())
			return err
		})
	})
	return tag.RowsAffected() > 0 && err == nil, err
}

// Release implements leases.Backend.
func (b *Backend) Release(ctx context.Context, h leases.Hold) (released bool, err error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	var waitedFor bool
	err = b.bounded(ctx, func(ctx context.Context) error {
		return b.retry(ctx, func(q querier) error {
			err := q.QueryRow(ctx, b.sql.release, h.Name, h.Owner, h.Fence, h.Slots).Scan(&waitedFor)
			released = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	})
	if released && waitedFor {
		b.notify(h.Name)
	}
	return released && err == nil, err
}
