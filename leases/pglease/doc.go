// Package pglease keeps leases and semaphores in Postgres 13 or newer, in the
// table sm_lease.
//
//	pool, err := pgxpool.New(ctx, "postgres://…")
//	if err != nil { … }
//	leases.Configure(pglease.New(pool))
//
// # The table
//
// migrations.Up creates it. The role of the pool needs SELECT, INSERT and UPDATE
// on it, and the role of a [Guard]'s transaction SELECT and UPDATE. It is found
// by the search_path, or in the schema that [Schema] names.
//
// A name has one row of slot 0, which is its head: every grant gives it a new
// fence. A lease is held in this row. A semaphore's holds are rows of slots 1 and
// up, which later holds use again, so that a name has as many of them as were
// ever held at once; a grant finds its row by index and reads few of them, unless
// there are more of them than its slots. A released hold's expires_at is
// -infinity. Rows are not deleted by normal work. One that was deleted by hand is
// made again, and the fence still grows.
//
// # What it costs, and what it keeps
//
// Each operation is one round trip: one statement, or for a semaphore's acquire
// two that are sent together. A refused attempt only reads. An acquire is as
// durable as the server's settings make it; a release does not wait for the
// disk, since one that a crash undoes costs others no more than the rest of the
// TTL. After a fail-over to a standby that lagged, a lease that is held may be
// granted again, with a larger fence all the same.
//
// The only clock is the server's, in microseconds. No attempt waits for another
// transaction, but for the grants of the same semaphore that are under way. A
// transaction that Postgres gave up for serializability or for a deadlock is
// made again, in bounded number.
//
// While somebody waits, a process has one connection beside its pool, to LISTEN
// for releases of all names it waits for. Such a name is marked by an advisory
// lock, by which a release knows that it has to notify.
//
// It works with any default_transaction_isolation and TimeZone. It keeps no state
// in a session: behind PgBouncer in transaction mode give the pool the query mode
// for that, such as default_query_exec_mode=exec in the connection string.
package pglease
