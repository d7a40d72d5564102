package pglease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/simple-module/core/leases"
)

// Guard makes tx commit only while h is held: call it in tx, before its writes
// or between them, in the database that holds sm_lease, which it finds along
// tx's search_path (see [Backend.Guard] for [Schema]). It locks the row of h's
// hold until tx ends and then checks, by the server's clock, that the hold is
// live, with h's owner and fence.
//
// From then on until tx has ended nobody is granted that hold's place, also
// when the hold expires meanwhile: attempts are told that the name is busy, at
// once. That includes h's own owner. Release ends the hold all the same, so end
// tx first. Call Guard in tx itself, not under a savepoint that may be rolled
// back, which would end the lock.
//
// An error that matches leases.ErrLost says that the hold is over, or is not in
// this database: roll back. So does any other error.
//
// KeepAlive, Refresh and Release of h go on while tx is open. Not so in a
// transaction that is repeatable read or serializable: there they fail until tx
// ends, and KeepAlive tries again until the deadline. There Guard is also
// refused with a serialization failure (40001) when the hold was refreshed or
// has ended since tx first read something: call it first, and make tx anew.
func Guard(ctx context.Context, tx pgx.Tx, h *leases.Handle) error {
	return onSearchPath.guard(ctx, tx, h)
}

// Guard is the function [Guard] for a table in the schema that [Schema] named.
func (b *Backend) Guard(ctx context.Context, tx pgx.Tx, h *leases.Handle) error {
	if b.invalid != nil {
		return b.invalid
	}
	return b.sql.guard(ctx, tx, h)
}

func (q *queries) guard(ctx context.Context, tx pgx.Tx, h *leases.Handle) error {
	if h == nil {
		return fmt.Errorf("%w: guard: handle must not be nil", leases.ErrInvalid)
	}
	if h.Deadline().IsZero() { // R8: this process considers it over
		return fmt.Errorf("%w: guard %q: it is not held", leases.ErrLost, h.Name())
	}
	args := []any{h.Name(), h.Token(), h.Fence()}
	var live bool
	err := ask(ctx, tx, []statement{{q.guardLock, args}, {q.guardCurrent, args}, {q.guardCheck, args}}, &live)
	if err != nil {
		return fmt.Errorf("leases: guard %q: %w", h.Name(), explain(err))
	}
	if !live {
		return fmt.Errorf("%w: guard %q: this database has no live hold of its owner and fence", leases.ErrLost, h.Name())
	}
	return nil
}
