package taskkey

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host makes keys of prefix, a colon and the host of the http(s) URL in the
// named field of a JSON object: alike for every spelling of the host, whatever
// the scheme, port, user and path are. An IPv6 address stands without
// brackets.
//
// An error is a payload that is not one JSON object, a field that is missing or no
// string, or a URL without an http or https host.
func Host(prefix, urlField string) func(payload []byte) (string, error) {
	return func(payload []byte) (string, error) {
		object, err := parse(payload)
		if err != nil {
			return "", fmt.Errorf("key %q: %w", prefix, err)
		}
		value, ok := object[urlField]
		if !ok {
			return "", fmt.Errorf("key %q: the payload has no field %q", prefix, urlField)
		}
		raw, ok := value.(string)
		if !ok {
			return "", fmt.Errorf("key %q: the field %q is not a string", prefix, urlField)
		}
		host, err := hostOf(raw)
		if err != nil {
			return "", fmt.Errorf("key %q: the field %q has no http or https URL with a host: %w", prefix, urlField, err)
		}
		return prefix + ":" + host, nil
	}
}

// hostOf splits the URL itself, since net/url refuses some hosts that other
// clients can reach, and since it puts the URL into its errors.
func hostOf(raw string) (string, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(raw), "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "", errors.New("it does not begin with http:// or https://")
	}
	host := rest
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	if strings.Contains(host, `\`) { // browsers end the host there, others do not
		return "", errors.New("there is a backslash in or before the host")
	}
	host = host[strings.LastIndexByte(host, '@')+1:]
	if strings.HasPrefix(host, "[") {
		return ipv6(host)
	}
	host, port, _ := strings.Cut(host, ":")
	if !isDigits(port) {
		return "", errors.New("the port is not a number")
	}
	host, err := url.PathUnescape(host)
	if err != nil || !utf8.ValidString(host) {
		return "", errors.New("the host has an invalid escape")
	}
	return name(host)
}

// ipv6 takes [address] with an optional port.
func ipv6(host string) (string, error) {
	address, port, ok := strings.Cut(host[1:], "]")
	if !ok || port != "" && (port[0] != ':' || !isDigits(port[1:])) {
		return "", errors.New("the IPv6 address is not [address] or [address]:port")
	}
	if decoded, err := url.PathUnescape(address); err == nil { // else a zone after a bare %
		address = decoded
	}
	a, err := netip.ParseAddr(address)
	if err != nil || !a.Is6() || !utf8.ValidString(address) {
		return "", errors.New("what stands in brackets is not an IPv6 address")
	}
	return a.Unmap().String(), nil
}

// lookup maps case, width and the like as browsers do, and keeps what is no
// proper domain name (underscores, long labels) as it is.
var lookup = idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.CheckHyphens(false))

const maxInternational = 2048 // bytes: the time that Punycode takes grows with the square

func name(host string) (string, error) {
	mapped := strings.ToLower(host)
	ascii := strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
	if !ascii || strings.Contains(mapped, "xn--") {
		if len(host) > maxInternational {
			return "", errors.New("the internationalized host is too long")
		}
		switch looked, err := lookup.ToASCII(host); {
		case err == nil:
			mapped = looked
		case !ascii:
			return "", errors.New("the host is not a valid internationalized name")
		}
		// What only looks like Punycode stays as it is: DNS may know it.
	}
	mapped = strings.TrimSuffix(mapped, ".")
	if mapped == "" {
		return "", errors.New("the host is empty")
	}
	if strings.HasPrefix(mapped, ".") || strings.HasSuffix(mapped, ".") || strings.Contains(mapped, "..") {
		return "", errors.New("the host has an empty label")
	}
	for _, r := range mapped {
		// The forbidden code points of https://url.spec.whatwg.org/#host-miscellaneous
		if r <= ' ' || r >= 0x7F || strings.ContainsRune(`#/:<>?@[\]^|%`, r) {
			return "", errors.New("the host has a character that no host has")
		}
	}
	if a, ok := ipv4(mapped); ok {
		return a.String(), nil
	}
	return mapped, nil
}

// ipv4 takes an IPv4 address as browsers and most resolvers do: one to four
// numbers, decimal, octal (leading 0) or hexadecimal (0x), the last of which
// fills the remaining bytes.
func ipv4(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var address uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, ok := ipv4Number(part, bits)
		if !ok {
			return netip.Addr{}, false
		}
		address = address<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}), true
}

func ipv4Number(s string, bits int) (uint64, bool) {
	base := 10
	if strings.HasPrefix(s, "0x") {
		s, base = s[2:], 16
		if s == "" {
			return 0, true
		}
	} else if len(s) > 1 && s[0] == '0' {
		base = 8
	}
	n, err := strconv.ParseUint(s, base, bits)
	return n, err == nil
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}
