package bootstrap

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// split takes scheme://userinfo@host/path?query apart. It is not ok when what
// follows may belong to a password with special characters: in
// redis://user:12/34@host parsers take 12 for a port and show it, and in
// ?password=12&34 they show 34.
func split(raw string) (userinfo, query string, ok bool) {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok || strings.Contains(rest, "#") {
		return "", "", false
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	onlyPath := authority == "" && strings.HasPrefix(tail, "/")
	if strings.Count(authority, "@") > 1 || strings.Contains(tail, "@") && !onlyPath {
		return "", "", false
	}
	if before, _, found := strings.Cut(authority, "@"); found {
		userinfo = before
	}
	_, query, _ = strings.Cut(tail, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if pair != "" && !strings.Contains(pair, "=") {
			return "", "", false
		}
	}
	return userinfo, query, true
}

const encodeHint = "special characters in it must be percent-encoded, such as %40 for @"

// secrets are the passwords of a URL, as it has them and as libraries may show
// them, the longest first.
type secrets []string

func secretsOf(raw string) (all secrets) {
	add := func(secret string) {
		for _, decode := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
			if s, err := decode(secret); err == nil {
				all = append(all, s, strings.Trim(strconv.Quote(s), `"`))
			}
		}
		all = append(all, secret)
	}
	userinfo, query, _ := split(raw)
	_, password, _ := strings.Cut(userinfo, ":")
	add(password)
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, _ = url.QueryUnescape(name)
		if strings.Contains(strings.ToLower(name), "password") {
			add(value)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// hide takes the secrets out of what a library or server says.
func (all secrets) hide(text string) string {
	for _, s := range all {
		text = strings.ReplaceAll(text, s, "xxxxx")
	}
	return text
}
