package sqlitelease

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/simple-module/core/leases"
)

// Guard makes tx commit only while h is held: call it in the transaction, in
// the file that holds sm_lease, before or between its writes. It takes the
// file's write lock and then checks, by SQLite's clock, that h's hold is live,
// with h's owner and fence. Until tx ends nobody can acquire, refresh or
// release any name of that file, h's own KeepAlive included, so keep tx short.
//
// An error that matches leases.ErrLost says that the hold is over, or is not
// in this file: roll back. So does any other error.
//
// A deferred transaction, SQLite's default, that has read something before
// Guard may be refused at once with "database is locked", whatever the
// busy_timeout (SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT): roll back and start anew,
// with Guard as its first statement or with BEGIN IMMEDIATE. Transactions on a
// db from [Open] are immediate, and wait in BeginTx.
func Guard(ctx context.Context, tx *sql.Tx, h *leases.Handle) error {
	if h == nil {
		return fmt.Errorf("%w: guard: handle must not be nil", leases.ErrInvalid)
	}
	if h.Deadline().IsZero() { // R8: this process considers it over
		return fmt.Errorf("%w: guard %q: it is not held", leases.ErrLost, h.Name())
	}
	r, err := tx.ExecContext(ctx, guardSQL, h.Name(), h.Token(), h.Fence())
	if err != nil {
		return fmt.Errorf("leases: guard %q: %w", h.Name(), explain(ctx, err))
	}
	switch n, err := r.RowsAffected(); {
	case err != nil:
		return fmt.Errorf("leases: guard %q: %w", h.Name(), explain(ctx, err))
	case n == 0:
		return fmt.Errorf("%w: guard %q: this file has no live hold of its owner and fence", leases.ErrLost, h.Name())
	}
	return nil
}
