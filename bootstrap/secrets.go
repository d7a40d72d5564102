package bootstrap

import (
	"net/url"
	"strings"
)

// failure is an error whose text is its own: what a library says may have a
// URL with a password in it.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// scrub takes the secrets of a URL out of a text.
func scrub(text, rawURL string) string {
	for _, secret := range secrets(rawURL) {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return text
}

func secrets(rawURL string) []string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil
	}
	var found []string
	add := func(s string) {
		if s != "" {
			found = append(found, s, url.QueryEscape(s), url.PathEscape(s))
		}
	}
	if password, ok := u.User.Password(); ok {
		add(password)
		if _, raw, ok := strings.Cut(u.User.String(), ":"); ok {
			found = append(found, raw)
		}
	}
	for name, values := range u.Query() {
		if strings.Contains(name, "password") {
			for _, v := range values {
				add(v)
			}
		}
	}
	return found
}
