package httplease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/leasename"
)

// Dedup returns a middleware that runs a request only while it holds the
// lease named by its key. Every request is an owner of its own, so two clicks
// of one user exclude each other, too.
//
// The empty key means that this request needs no lease: it runs as it is. An
// error of key means that it does not run: 400. A key that can't be a name,
// because it is longer than 512 bytes or not valid UTF-8, is hashed. Other
// middlewares of this module name their leases alike, so a key that a task
// uses, too, keeps the two apart.
//
// ttl is 1 ms to 10 years. Arguments that are out of their bounds, or a nil
// key, are logged as an error at once, and then every request that needs the
// lease is answered with 500; none runs unguarded.
//
// The middleware is safe for concurrent use and may wrap several handlers,
// which then exclude each other where their keys are equal.
func Dedup(key func(*http.Request) (string, error), ttl time.Duration, opts ...Option) func(http.Handler) http.Handler {
	var s settings
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if !s.waits {
		s.handle = append(s.handle, leases.NonBlocking())
	}
	d := &dedup{settings: s, key: key, ttl: ttl}
	if key == nil {
		d.key = func(*http.Request) (string, error) { return "nil", nil }
		d.misuse = fmt.Errorf("%w: key must not be nil", leases.ErrInvalid)
	} else if err := d.newHandle("probe").Refresh(context.Background()); errors.Is(err, leases.ErrInvalid) {
		d.misuse = err // Refresh of what was never acquired sends nothing
	}
	if d.misuse != nil {
		d.logger().Error("httplease.Dedup is misused: its requests are answered with 500", "error", d.misuse)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, next) })
	}
}

type dedup struct {
	settings
	key    func(*http.Request) (string, error)
	ttl    time.Duration
	misuse error
}

func (d *dedup) newHandle(name string) *leases.Handle {
	return leases.Lease(name, d.ttl, d.handle...)
}

func (d *dedup) logger() *slog.Logger {
	if d.log != nil {
		return d.log
	}
	return slog.Default()
}

func (d *dedup) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key, err := d.key(r)
	switch {
	case err != nil:
		d.logger().WarnContext(r.Context(), "request refused: it has no key for its lease", "path", r.URL.Path, "error", err)
		badKey.write(w, r)
		return
	case key == "":
		next.ServeHTTP(w, r)
		return
	case d.misuse != nil:
		d.refuse(w, r, "", d.misuse)
		return
	}
	h := d.newHandle(leasename.Of(key))
	a := &answer{ResponseWriter: w}
	ran := false
	err = d.do(r.Context(), h, func(ctx context.Context) error {
		ran = true
		next.ServeHTTP(a, r.WithContext(ctx))
		return nil
	})
	switch {
	case !ran:
		d.refuse(w, r, h.Name(), err)
	case err != nil:
		d.logger().WarnContext(r.Context(), "lease lost while the request ran", "name", h.Name(), "fence", h.Fence(),
			"answered", a.begun, "error", err)
		if !a.begun {
			lost.write(w, r)
		}
	}
}

// do returns, as Handle.Do does, the error of an acquire, or one that matches
// leases.ErrLost when the hold was lost before run returned.
func (d *dedup) do(ctx context.Context, h *leases.Handle, run func(context.Context) error) error {
	if !d.holdThroughTTL {
		return h.Do(ctx, run)
	}
	if err := h.Acquire(ctx); err != nil {
		return err
	}
	bound, cancel := h.Context(ctx)
	defer cancel()
	defer h.Detach()
	run(bound)
	if cause := context.Cause(bound); errors.Is(cause, leases.ErrLost) {
		return cause
	}
	return nil
}

// refuse answers a request that does not run because of err.
func (d *dedup) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	var notAcquired *leases.NotAcquiredError
	if errors.As(err, &notAcquired) {
		w.Header().Set("Retry-After", retryAfter(notAcquired.RetryAfter))
		if d.onBusy != nil {
			d.onBusy.ServeHTTP(w, r)
		} else {
			busy.write(w, r)
		}
		return
	}
	p, level := storeFailed, slog.LevelError
	if errors.Is(err, leases.ErrInvalid) || errors.Is(err, leases.ErrKind) {
		p = misused
	}
	if r.Context().Err() != nil { // the client has gone, and it is nobody's fault
		level = slog.LevelDebug
	}
	d.logger().Log(r.Context(), level, "request refused: its lease could not be acquired", "name", name, "path", r.URL.Path, "error", err)
	p.write(w, r)
}

// retryAfter is d in whole seconds, rounded up, at least 1.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}
