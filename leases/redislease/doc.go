// Package redislease keeps leases and semaphores in Redis 6.2 or newer, or
// Valkey: on a single server, behind Sentinel or on a Cluster.
//
//	leases.Configure(redislease.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})))
//
// Each operation is one script and one round trip, which operations of the same
// moment share. The clock is the server's.
//
// # Keys
//
// The braces are the hash tag that keeps the keys of the name n in one slot of
// a Cluster; %, { and } in the name are written as %25, %7B and %7D.
//
//   - sm:{n} has the live holds, a string for a lease and a sorted set for a
//     semaphore, and expires with the last of them.
//
//   - sm:{n}:fence has the latest fence and expires a week after the hold. R5
//     does not need it, as the server's clock has gone on by then.
//
//   - sm:{n}:released:p is left by a release of the process p for as long as
//     its caller may wait for the answer (Timeout): the client sends a command
//     again when the reply was lost, and both get the same answer.
//
//   - sm:{n}:line has a ticket for each process that waits, and expires a
//     minute after the last attempt of a waiter.
//
// # Waiting
//
// Processes that wait for a name are served in the order in which they came,
// and within a process its waiters are. Who comes new does not go first.
// A release makes it the turn of the first in line, and publishes that on
// sm:{n}:line:ticket; a process subscribes to the tickets it waits with, on
// one connection for all. A turn that is not taken for 100 ms is over; a
// process that died is passed over at once, on a Cluster after its turn.
//
// A process that can't subscribe does not stand in line: it asks again after
// its back-off, and is served when nobody is.
//
// # What the server must allow
//
// The scripts are called by EVALSHA, and by EVAL where the server does not know
// them. They use GET, SET, DEL, EXISTS, PTTL, PEXPIRE, TYPE, TIME, ZADD, ZREM,
// ZSCORE, ZMSCORE, ZCOUNT, ZRANGEBYSCORE, ZREMRANGEBYSCORE and PUBLISH.
// As an ACL:
//
//	~sm:* &sm:* +evalsha +eval +get +set +del +exists +pttl +pexpire +type +time
//	+zadd +zrem +zscore +zmscore +zcount +zrangebyscore +zremrangebyscore
//	+publish +subscribe +unsubscribe +ping
//
// and what the client itself needs, such as CLUSTER SLOTS on a Cluster.
//
// # What is not promised
//
// Redis replicates asynchronously and may lose its last writes in a fail-over,
// or all when it restarts without persistence: then a lease that is held is
// granted again. Its fence is larger than the lost one's all the same, so
// that a resource which refuses smaller fences is safe, as are writes under
// the Guard of a database's backend. This supposes that the servers' clocks
// agree to less than the time of the fail-over. maxmemory policies that evict
// keys can end a hold early; use noeviction.
package redislease
