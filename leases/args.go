package leases

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of every argument (R11).
const (
	MaxName  = 512                       // bytes
	MaxOwner = 256                       // bytes
	MaxSlots = 100_000                   // of one semaphore
	MinTTL   = time.Millisecond          // shorter ones are refused, not rounded
	MaxTTL   = 10 * 365 * 24 * time.Hour // ten years
)

// Check returns c with its TTL rounded up to a whole millisecond, or an error
// that matches ErrInvalid, names the argument and gives its bounds. A backend
// calls it before anything is sent to its store.
func (c Claim) Check() (Claim, error) {
	if err := checkText("name", c.Name, MaxName); err != nil {
		return c, err
	}
	if err := checkText("owner", c.Owner, MaxOwner); err != nil {
		return c, err
	}
	if err := checkSlots(c.Slots, 0); err != nil {
		return c, err
	}
	ttl, err := CheckTTL(c.TTL)
	c.TTL = ttl
	return c, err
}

// Check returns an error that matches ErrInvalid when an argument is out of
// its bounds.
func (h Hold) Check() error {
	if err := checkText("name", h.Name, MaxName); err != nil {
		return err
	}
	if err := checkText("owner", h.Owner, MaxOwner); err != nil {
		return err
	}
	if err := checkSlots(h.Slots, 0); err != nil {
		return err
	}
	if h.Fence < 0 {
		return invalid("fence", "0 or more", h.Fence)
	}
	return nil
}

// CheckTTL returns ttl rounded up to a whole millisecond, or an error that
// matches ErrInvalid when it is not 1 ms to 10 years.
func CheckTTL(ttl time.Duration) (time.Duration, error) {
	if ttl < MinTTL || ttl > MaxTTL {
		return 0, invalid("ttl", "1ms to 10 years (87600h)", ttl)
	}
	if part := ttl % time.Millisecond; part != 0 {
		ttl += time.Millisecond - part
	}
	return ttl, nil
}

func checkText(argument, s string, most int) error {
	var got string
	switch {
	case s == "":
		got = "an empty string"
	case len(s) > most:
		got = fmt.Sprintf("%d bytes", len(s))
	case !utf8.ValidString(s):
		got = fmt.Sprintf("invalid UTF-8: %q", s)
	case strings.IndexByte(s, 0) >= 0:
		got = fmt.Sprintf("a NUL byte: %q", s)
	default:
		return nil
	}
	return invalid(argument, fmt.Sprintf("1 to %d bytes of valid UTF-8 without NUL", most), got)
}

func checkSlots(slots, least int) error {
	if slots < least || slots > MaxSlots {
		return invalid("slots", fmt.Sprintf("%d to %d", max(least, 1), MaxSlots), slots)
	}
	return nil
}
