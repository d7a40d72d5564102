// Package taskkey makes the keys of a task from its payload: alike for every
// spelling of the same JSON and of the same URL, and different for all else.
//
// The errors name the field and never show the payload, which may hold secrets.
package taskkey

import "github.com/simple-module/core/middleware/internal/leasename"

// Name returns the lease name of a key: the key itself, or its beginning and
// its SHA-256 when it may not be a name, for being longer than 512 bytes among
// others. It is the same in every middleware.
func Name(key string) string { return leasename.Of(key) }

// Owner returns owner itself, or its beginning and its SHA-256 when it may not
// be an owner token, for being longer than 256 bytes among others.
func Owner(owner string) string { return leasename.Owner(owner) }
