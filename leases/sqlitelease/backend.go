package sqlitelease

import (
	"context"
	"database/sql"
	"time"

	"github.com/simple-module/core/leases"
)

// Backend keeps leases and semaphores in the table sm_lease of a SQLite file.
// It is safe for concurrent use. It does not close the *sql.DB.
type Backend struct {
	db      *sql.DB
	timeout time.Duration

	// One writer at a time in this process, first come first served: SQLite's
	// own queue is a poll with pauses of up to 100 ms. Readers are few, so
	// that many waiters do not open a connection each.
	writing, reading chan struct{}

	watchers watchers
}

const readers = 4

// Option changes a Backend from its defaults.
type Option func(*Backend)

// Timeout bounds what one attempt, refresh or release takes when ctx does not
// end it sooner: above all the wait while another process has the file's write
// lock. Then it fails with an error that says so; it is never reported as
// busy. The default is 5 s; 0 or less is the default.
func Timeout(d time.Duration) Option {
	return func(b *Backend) {
		if d > 0 {
			b.timeout = d
		}
	}
}

// New returns a backend on db, which may use any SQLite driver; [Open] gives
// one that suits. The table sm_lease must exist: migrations.Up creates it.
//
// Every process must open the same file. A db that is in memory excludes
// nobody outside it. With a driver that does not end a wait for the file's
// lock when ctx ends (modernc.org/sqlite does), a call may last as long as the
// busy_timeout of its connection. Outside WAL mode readers and writers wait
// for each other.
func New(db *sql.DB, opts ...Option) *Backend {
	b := &Backend{
		db:      db,
		timeout: defaultTimeout,
		writing: make(chan struct{}, 1),
		reading: make(chan struct{}, readers),
	}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	return b
}

// Acquire implements leases.Backend.
func (b *Backend) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	c, err := c.Check()
	if err != nil {
		return leases.Grant{}, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()

	s, err := b.state(ctx, c)
	if err != nil {
		return leases.Grant{}, err
	}
	if s.otherKind || s.taken {
		return s.refusal(c)
	}
	fence, err := b.grant(ctx, c)
	if err != nil {
		return leases.Grant{}, err
	}
	if fence > 0 {
		return leases.Grant{Held: true, Fence: fence}, nil
	}
	// Another owner came between.
	if s, err = b.state(ctx, c); err != nil {
		return leases.Grant{}, err
	}
	return s.refusal(c)
}

// state is what an attempt can learn without the write lock.
type state struct {
	otherKind bool
	taken     bool
	remaining *int64 // microseconds until the first live hold expires; nil: none is live
}

func (s state) refusal(c leases.Claim) (leases.Grant, error) {
	if s.otherKind {
		return leases.Grant{}, c.KindError()
	}
	var left time.Duration
	if s.remaining != nil { // in its last millisecond none is left
		left = max(time.Duration(*s.remaining)*time.Microsecond, time.Millisecond)
	}
	return leases.Grant{RetryAfter: left}, nil
}

func (b *Backend) state(ctx context.Context, c leases.Claim) (s state, err error) {
	err = b.do(ctx, b.reading, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, stateSQL, c.Name, c.Owner, c.Slots).
			Scan(&s.otherKind, &s.taken, &s.remaining)
	})
	return s, err
}

// grant returns 0 when refused.
func (b *Backend) grant(ctx context.Context, c leases.Claim) (fence int64, err error) {
	err = b.do(ctx, b.writing, func(conn *sql.Conn) error {
		fence = 0
		query, args := acquireLeaseSQL, []any{c.Name, c.Owner, c.TTL.Microseconds(), time.Now().UnixMicro()}
		if c.Slots > 0 {
			query, args = acquireSemaphoreSQL, append(args, c.Slots)
		}
		rows, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		// To the end, and with Close's error: the statement commits there.
		for rows.Next() {
			if err := rows.Scan(&fence); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return rows.Close()
	})
	return fence, err
}

// Refresh implements leases.Backend.
func (b *Backend) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (bool, error) {
	ttl, err := leases.CheckTTL(ttl)
	if err != nil {
		return false, err
	}
	return b.change(ctx, h, refreshSQL, ttl.Microseconds())
}

// Release implements leases.Backend.
func (b *Backend) Release(ctx context.Context, h leases.Hold) (bool, error) {
	return b.change(ctx, h, releaseSQL)
}

// change reports whether h named a live hold, to which query was applied.
func (b *Backend) change(ctx context.Context, h leases.Hold, query string, more ...any) (changed bool, err error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err = b.do(ctx, b.writing, func(conn *sql.Conn) error {
		r, err := conn.ExecContext(ctx, query, append([]any{h.Name, h.Owner, h.Fence, h.Slots}, more...)...)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		changed = n > 0
		return err
	})
	return changed && err == nil, err
}
