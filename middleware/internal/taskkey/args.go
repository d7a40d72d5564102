package taskkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Args makes keys of prefix, a colon and the values of the named fields of a
// JSON object, in the order named; with no fields named, of the whole object.
// Every spelling of the same values makes the same key: the order and repeats
// of keys (the last one counts), spaces, escapes, 1e2 and 100.0 make no
// difference, and numbers are exact however long they are.
//
//	Args("import", "dataset") of {"dataset": 42} is import:42
//	Args("import", "dataset", "part") of {"dataset": "a", "part": null} is import:"a",null
//
// An error is a payload that is not one JSON object, or that lacks a field.
func Args(prefix string, fields ...string) func(payload []byte) (string, error) {
	return func(payload []byte) (string, error) {
		object, err := parse(payload)
		if err != nil {
			return "", fmt.Errorf("key %q: %w", prefix, err)
		}
		var b strings.Builder
		b.WriteString(prefix)
		b.WriteByte(':')
		if len(fields) == 0 {
			return b.String() + canonical(object), nil
		}
		for i, field := range fields {
			value, ok := object[field]
			if !ok {
				return "", fmt.Errorf("key %q: the payload has no field %q", prefix, field)
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(canonical(value))
		}
		return b.String(), nil
	}
}

// parse returns the members of the one JSON object that payload is, with
// numbers in their canonical form.
func parse(payload []byte) (map[string]any, error) {
	// encoding/json would replace what it can't decode by U+FFFD, so that
	// different payloads became alike.
	if !utf8.Valid(payload) {
		return nil, errors.New("the payload is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil { // also for nesting deeper than 10,000
		return nil, fmt.Errorf("the payload is not valid JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("the payload has more than one JSON value")
	}
	if hasLoneSurrogate(payload) {
		return nil, errors.New("the payload has an escape of half a character (a lone surrogate)")
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the payload is not a JSON object")
	}
	return object, nil
}

// canonical spells a decoded value in the one way: keys sorted, no spaces.
func canonical(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(canonicalNumbers(v)); err != nil {
		panic(err) // what was decoded can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func canonicalNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return json.Number(canonicalNumber(string(v)))
	case []any:
		for i := range v {
			v[i] = canonicalNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = canonicalNumbers(v[k])
		}
	}
	return v
}

// hasLoneSurrogate reports whether a \u escape in valid JSON is half of a
// pair without the other half.
func hasLoneSurrogate(valid []byte) bool {
	for {
		at := bytes.IndexByte(valid, '\\')
		if at < 0 {
			return false
		}
		escape := valid[at:]
		switch u, ok := unicodeEscape(escape); {
		case !ok:
			valid = escape[2:]
		case u < 0xD800 || u > 0xDFFF:
			valid = escape[6:]
		default:
			low, ok := unicodeEscape(escape[6:])
			if u > 0xDBFF || !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			valid = escape[12:]
		}
	}
}

func unicodeEscape(s []byte) (unit uint64, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	return unit, err == nil
}
