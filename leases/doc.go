// Package leases gives every process of an application two primitives: an
// expiring lease, which one owner at a time holds, and a counted semaphore,
// which at most N hold. They are kept in Redis (redislease), Postgres
// (pglease), SQLite (sqlitelease) or, by default, in this process.
//
//	h := leases.Lease("import:42", time.Minute, leases.KeepAlive())
//	err := h.Do(ctx, func(ctx context.Context) error {
//		return importDataset(ctx, 42, h.Fence())
//	})
//
// A lease can end while its holder still works: the process stalled past its
// TTL, or the store lost it. Two things make that safe. The context inside Do
// is cancelled as soon as the hold is over (R8). And each grant has a fence, a
// number that grows with every grant of the name (R5): let the resource keep
// the largest fence it has seen and refuse smaller ones, or use the Guard of
// pglease and sqlitelease, and a late write of a former holder is refused.
//
// # The rules
//
// Every backend and every layer keeps these; package leasetest has a test
// named after each.
//
//   - R1 exclusion. At most one live hold of a lease, at most slots live holds
//     of a semaphore, by the store's clock. The clocks of the application's
//     hosts never matter.
//   - R2 expiry. Once the TTL has passed the holder can neither refresh nor
//     release, even if nobody else took the name.
//   - R3 identity. Refresh and Release work only for the same owner and the
//     fence of its current hold. When the same owner has acquired again, the
//     older hold is lost: it can't be refreshed, and its Release does not end
//     the newer one.
//   - R4 re-acquire. An owner that holds a name may acquire it again: a new,
//     larger fence, a whole TTL, no second slot.
//   - R5 fence. It grows strictly with every grant of a name, over all slots
//     and re-acquires, and does not restart after the store lost its data: it
//     is max(previous + 1, the store's clock in microseconds since 1970), and
//     fits a JSON number. The fences of a semaphore name its holds but do not
//     order them, since several are live at once: refusing smaller fences is
//     for leases.
//   - R6 confirmed or not held. What the store could not confirm is never
//     reported as held. Errors of the store never turn into "busy" or into
//     another backend. What an attempt with a random token may have acquired
//     in spite of its error is released in the background; an explicit owner's
//     is left for its retry.
//   - R7 waiting. The first attempt is immediate. A waiter wakes on release, at
//     the holder's expiry, and on a jittered back-off that bounds what a lost
//     wake-up can cost. It ends with Wait, or with ctx.
//   - R8 the local guard. Deadline is counted from before the request was
//     sent, on the monotonic clock. Contexts bound to the hold are cancelled
//     at that moment unless a refresh moved it.
//   - R9 Do. It releases on return, panic and a cancelled ctx, and returns fn's
//     error, joined with ErrLost if the hold was lost before fn returned.
//   - R10 KeepAlive. It refreshes at a third of the TTL. An error of the store is
//     retried until the deadline; a refusal is a loss.
//   - R11 arguments. Name 1–512 bytes, owner 1–256, valid UTF-8 without NUL; TTL
//     1 ms – 10 years, rounded up to a millisecond; slots 1–100,000; Wait not
//     negative. Anything else is ErrInvalid and sends nothing to the store.
//   - R12 kinds. A name in use as a lease refuses Semaphore, and the other way
//     round: ErrKind.
//   - R13 slots. A grant needs fewer live holds than the caller's slots,
//     whatever number others used. Lowering it never ends a hold.
//   - R14 handles. Safe for concurrent use and reusable. The backend is looked
//     up at acquire, and the hold stays with it.
package leases
