package leases

import (
	"fmt"
	"time"
)

// Option changes a handle from its defaults. Options that are out of bounds
// make every method of the handle return an error that matches ErrInvalid.
type Option func(*settings)

type settings struct {
	owner       string
	ownerGiven  bool
	wait        time.Duration
	waitGiven   bool
	nonBlocking bool
	keepAlive   bool
	backend     Backend
	backendNil  bool
}

// Owner sets the owner token, 1 to 256 bytes. The default is a random token
// for each handle. Handles with the same owner share a hold: the latest
// acquire takes it over and the older handle has lost it (R3, R4).
func Owner(token string) Option {
	return func(s *settings) { s.owner, s.ownerGiven = token, true }
}

// Wait makes Acquire wait at most d for a busy name; 0 is one attempt. The
// default is to wait until ctx ends.
func Wait(d time.Duration) Option {
	return func(s *settings) { s.wait, s.waitGiven = d, true }
}

// NonBlocking makes Acquire a single attempt.
func NonBlocking() Option {
	return func(s *settings) { s.nonBlocking = true }
}

// KeepAlive refreshes the hold in the background, at a third of the TTL, from
// the acquire until Release, Detach or the loss of the hold. Without it a
// hold ends after its TTL unless Refresh is called.
func KeepAlive() Option {
	return func(s *settings) { s.keepAlive = true }
}

// On makes the handle use b instead of the process-wide backend.
func On(b Backend) Option {
	return func(s *settings) { s.backend, s.backendNil = b, b == nil }
}

func (s *settings) check() error {
	if s.ownerGiven {
		if err := checkText("owner", s.owner, MaxOwner); err != nil {
			return err
		}
	}
	if s.waitGiven && s.wait < 0 {
		return invalid("wait", "0 or more", s.wait)
	}
	if s.backendNil {
		return invalid("backend", "a backend", fmt.Sprint(s.backend))
	}
	return nil
}
