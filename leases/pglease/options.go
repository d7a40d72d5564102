package pglease

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/simple-module/core/leases"
)

// Option changes a Backend from its defaults.
type Option func(*Backend)

const defaultTimeout = 5 * time.Second

// Timeout bounds what one attempt, refresh or release takes when ctx does not
// end it sooner, with the wait for a connection of the pool and with tries that
// are made again. The default is 5 s; 0 or less is the default.
func Timeout(d time.Duration) Option {
	return func(b *Backend) {
		if d > 0 {
			b.timeout = d
		}
	}
}

const maxIdentifier = 63 // bytes; Postgres cuts a longer one off

// Schema names the schema that sm_lease lies in, exactly as it is in the
// catalog: 1 to 63 bytes of valid UTF-8 without NUL. Otherwise every operation
// is an error that matches leases.ErrInvalid. The default is to look for the
// table along the search_path.
func Schema(name string) Option {
	return func(b *Backend) {
		b.schema, b.invalid = name, nil
		if name == "" || len(name) > maxIdentifier || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
			b.invalid = fmt.Errorf("%w: schema must be 1 to %d bytes of valid UTF-8 without NUL, got %q", leases.ErrInvalid, maxIdentifier, name)
		}
	}
}
