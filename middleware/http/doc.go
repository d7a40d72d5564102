// Package httplease keeps two requests for the same thing from running at the
// same time, over all processes that share a backend: the second click on
// Rebuild is answered with 409 Conflict while the first one runs.
//
//	once := httplease.Dedup(func(r *http.Request) (string, error) {
//		return "rebuild:" + r.PathValue("index"), nil
//	}, time.Minute, httplease.KeepAlive())
//	mux.Handle("POST /indexes/{index}/rebuild", once(rebuild))
//
// # Answers
//
// A request that does not run gets a problem document (RFC 9457,
// application/problem+json), without anything of the key or the error in it:
//
//   - 409 Conflict, type [TypeBusy], when the name is busy. Retry-After is how
//     long the present holder still has, in whole seconds, rounded up, at least
//     1; it may be done sooner. [OnBusy] replaces this answer.
//   - 400 Bad Request when the key function returned an error.
//   - 503 Service Unavailable when the backend failed. It is never taken for
//     free, nor for busy.
//   - 500 Internal Server Error when the arguments of Dedup are out of their
//     bounds, or the name is in use as a semaphore.
//
// All but 409 are logged with their reason.
//
// # While the handler runs
//
// Its request's context carries the handle (leases.FromContext) and ends, with
// a cause that matches leases.ErrLost, when the hold is lost: without
// [KeepAlive] once the TTL has passed. The handler should stop then, and answer
// as it does for any context that has ended. If it has answered nothing, the
// client gets 503, type [TypeLost], instead of an empty 200; what was written
// already stays. Either way a warning is logged.
//
// The hold ends when the handler has returned or panicked, also when the
// client has gone away, so keep the handler running only as long as the work
// lasts; see [HoldThroughTTL] for the other way.
package httplease
