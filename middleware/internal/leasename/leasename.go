// Package leasename makes lease names of keys, and owner tokens, alike in every middleware, so
// that a request and a task with the same key exclude each other.
package leasename

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/simple-module/core/leases"
)

const (
	mark   = "#sha256:"
	digits = 2 * sha256.Size
	head   = 64 // bytes of the key that stay readable
)

// Of returns key itself where it may be a name, and otherwise (longer than
// leases.MaxName, invalid UTF-8, a NUL) its first bytes and its SHA-256. Two
// keys never have the same name: what looks like a hashed key is hashed too.
// The empty key has no name and stays empty.
func Of(key string) string { return within(leases.MaxName, key) }

// Owner is the same for owner tokens and leases.MaxOwner.
func Owner(owner string) string { return within(leases.MaxOwner, owner) }

func within(most int, key string) string {
	if len(key) <= most && utf8.ValidString(key) && strings.IndexByte(key, 0) < 0 && !looksHashed(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	start := strings.ToValidUTF8(key[:min(len(key), head)], "")
	return strings.ReplaceAll(start, "\x00", "") + mark + hex.EncodeToString(sum[:])
}

func looksHashed(key string) bool {
	return len(key) >= len(mark)+digits && strings.HasPrefix(key[len(key)-digits-len(mark):], mark)
}
