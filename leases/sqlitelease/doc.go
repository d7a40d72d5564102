// Package sqlitelease keeps leases and semaphores in a SQLite file, for the
// processes of one host.
//
//	db, err := sqlitelease.Open("/var/lib/app/leases.db")
//	if err != nil { … }
//	if err := migrations.Up(ctx, db, "sqlite"); err != nil { … }
//	leases.Configure(sqlitelease.New(db))
//
// The table sm_lease may lie in the application's own file, which is what
// [Guard] needs: writes to that file then commit only while the lease is held.
//
// # What it relies on
//
// Every change is a single statement that takes the file's write lock before
// it reads anything, so processes queue for the lock instead of racing. The
// clock is SQLite's own, read by that statement once it has the lock, in whole
// milliseconds; a hold is live through the millisecond in which it expires, so
// that it never ends before its holder's Deadline. It is the host's clock, the
// same for every process that can use the file; a step of it moves every
// expiry by as much. SQLite 3.42 or newer is needed.
//
// A refused attempt only reads. In WAL mode it neither waits for a writer nor
// holds one up. A process in which anybody waits looks about 25 times a second
// for releases in the others, with one statement for all names.
package sqlitelease
