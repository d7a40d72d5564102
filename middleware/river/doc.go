// Package riverlease runs River jobs under leases and semaphores.
//
//	once := riverlease.Lease(riverlease.ArgsKey("import", "dataset"), time.Minute, riverlease.KeepAlive())
//
//	// for one kind of job
//	func (w *ImportWorker) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware {
//		return []rivertype.WorkerMiddleware{once}
//	}
//
//	// or for all jobs of a client
//	river.Config{Middleware: []rivertype.Middleware{once}}
//
// With Config.Middleware the key function sees every kind of job and returns ""
// for those that need no lease. The value is also a rivertype.Plugin, for
// Config.Plugins: once.(rivertype.Plugin).
//
// The key comes from the job's args or from anything else in its row, and the
// owner is the job: its ID and its creation time. So a retry re-acquires the
// lease that a killed attempt left behind, at once and with a larger fence,
// while other jobs with that key stay out. The worker's ctx carries the handle
// (leases.FromContext) and ends when the lease is lost; the hold is released
// at the end of each attempt, also by a panic. An attempt whose hold was lost
// before it returned has failed, with an error that matches leases.ErrLost.
// Inserting a job is never refused or delayed: the lease is about running.
//
// # Busy jobs
//
// A job whose key is busy waits in place for a while (Wait, MaxWaiting) and is
// then snoozed. That uses up no attempt, is no error, and does not end a job on
// its last attempt; OnBusy has the alternatives. The snooze is about the time
// until its turn, by what the jobs in front of it are likely to take; 30 s or so
// at most. One of up to 5 s ends with the next poll of the queue
// (FetchPollInterval, a second by default). Where jobs of one key take less than
// that, poll more often, or let as many wait as the queue has workers:
// MaxWaiting(MaxWorkers) and a Wait of some seconds run two hundred jobs of
// 20 ms in little more than their four seconds without a snooze.
// What waits in place is given back with its attempt by StopAndCancel. The
// time in the middleware is not part of the job's timeout, but River's rescuer
// counts it: keep Wait well below RescueStuckJobsAfter.
//
// # Several at once
//
// Middlewares stack: a job then runs when it holds all of their names. The
// outermost is the first of Worker.Middleware, then come Config.Plugins and
// Config.Middleware. While an inner one is busy the outer ones are given back
// at once, and the job waits in place holding none of them; then the outermost
// calls what it wraps again. leases.FromContext finds the innermost handle.
// Several on one key with the same backend are one hold: do not stack those.
//
// # Jobs that run twice
//
// River's rescuer starts a job again that has run for RescueStuckJobsAfter,
// whether its process has died or only been slow. The second run takes the
// hold over, and the first one's ctx ends with leases.ErrLost: at once in the
// same process, elsewhere at its TTL or its next refresh.
package riverlease
