package redislease

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hashTag is what Redis hashes of a key, as its Cluster specification says: what
// is between the first { and the first } after it, unless that is empty.
func hashTag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func TestKeysAreReadable(t *testing.T) {
	b := New(nil)
	for name, want := range map[string]string{
		"import:42": "sm:{import:42}", "a{b}c": "sm:{a%7Bb%7Dc}", "}": "sm:{%7D}", "%7D": "sm:{%257D}", "日本": "sm:{日本}",
	} {
		require.Equal(t, want, b.key(name))
		require.Equal(t, want+":fence", fenceKey(b.key(name)))
	}
}

// FuzzCase20_Keys: of two names no key is the same, and the hash tag is the
// whole escaped name.
func FuzzCase20_Keys(f *testing.F) {
	for _, pair := range [][2]string{{"}", "{"}, {"%7D", "}"}, {"%257D", "%7D"}, {"x", "x}:fence"}, {"x:fence", "x"}, {"{}x", "x{}"}} {
		f.Add(pair[0], pair[1])
	}
	b := New(nil)
	f.Fuzz(func(t *testing.T, one, two string) {
		if one == "" || two == "" {
			return
		}
		keys := func(name string) []string {
			k := b.key(name)
			return []string{k, fenceKey(k), releasedKey(k, "process"), lineKey(k), turnChannel(k, "ticket")}
		}
		seen := make(map[string]bool)
		for _, k := range keys(one) {
			seen[k] = true
			require.Equal(t, escaper.Replace(one), hashTag(k))
		}
		for _, k := range keys(two) {
			require.Equal(t, one == two, seen[k], "%q %q %q", one, two, k)
		}
	})
}
