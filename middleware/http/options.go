package httplease

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/simple-module/core/leases"
)

// Option changes a middleware from its defaults.
type Option func(*settings)

type settings struct {
	handle         []leases.Option
	waits          bool
	holdThroughTTL bool
	onBusy         http.Handler
	log            *slog.Logger // nil: slog.Default, as it is at the time
}

// Wait lets a request wait at most d for a busy name before it is answered
// with 409; 0 is one attempt, which is the default. It ends sooner when the
// request's context does.
func Wait(d time.Duration) Option {
	return func(s *settings) { s.handle, s.waits = append(s.handle, leases.Wait(d)), true }
}

// KeepAlive refreshes the hold while the handler runs, however long that is.
// Without it the hold is lost, and the request's context ends, when the TTL
// has passed.
func KeepAlive() Option {
	return func(s *settings) { s.handle = append(s.handle, leases.KeepAlive()) }
}

// HoldThroughTTL keeps the hold when the handler has returned, whatever it
// answered, until the TTL has passed since the request acquired it (or since
// the last refresh of KeepAlive): at most one run per TTL. A handler that
// wants to let the next request run at once releases it itself:
//
//	if h, ok := leases.FromContext(r.Context()); ok {
//		h.Release(r.Context())
//	}
func HoldThroughTTL() Option {
	return func(s *settings) { s.holdThroughTTL = true }
}

// On uses b instead of the process-wide backend, which is otherwise looked up
// at each request.
func On(b leases.Backend) Option {
	return func(s *settings) { s.handle = append(s.handle, leases.On(b)) }
}

// OnBusy answers with h instead of the 409 problem. Retry-After is in the
// response's headers already; h may remove it.
func OnBusy(h http.Handler) Option {
	return func(s *settings) { s.onBusy = h }
}

// Logger logs to l instead of slog.Default.
func Logger(l *slog.Logger) Option {
	return func(s *settings) { s.log = l }
}
