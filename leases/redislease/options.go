package redislease

import (
	"fmt"
	"strings"
	"time"

	"github.com/simple-module/core/leases"
)

// Option changes a Backend from its defaults.
type Option func(*Backend)

// Prefix begins every key, to keep two applications on one server apart. The
// default is "sm:". It must not have braces, which are for the hash tag: then
// every operation returns an error that matches leases.ErrInvalid.
func Prefix(p string) Option {
	return func(b *Backend) { b.prefix = p }
}

const defaultTimeout = 5 * time.Second

// Timeout bounds one operation, with the client's own retries, when ctx does
// not end it sooner. The default is 5 s; 0 or less is the default.
func Timeout(d time.Duration) Option {
	return func(b *Backend) {
		b.timeout = d
		if d <= 0 {
			b.timeout = defaultTimeout
		}
	}
}

func (b *Backend) check() error {
	switch {
	case b.client == nil:
		return fmt.Errorf("%w: client must be a client, got nil", leases.ErrInvalid)
	case strings.ContainsAny(b.prefix, "{}"):
		return fmt.Errorf("%w: prefix must be without { and }, got %q", leases.ErrInvalid, b.prefix)
	}
	return nil
}
