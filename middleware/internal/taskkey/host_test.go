package taskkey_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/middleware/internal/taskkey"
)

func hostKey(t testing.TB, url string) (string, error) {
	payload, err := json.Marshal(map[string]string{"url": url})
	require.NoError(t, err)
	return taskkey.Host("host", "url")(payload)
}

func TestHost(t *testing.T) {
	label := strings.Repeat("a", 70)
	long := strings.Repeat("long.", 10000) + "example"
	for want, urls := range map[string][]string{
		"example.com": {
			"http://example.com", "https://example.com/", "HTTP://EXAMPLE.COM/a", "https://example.com:8443/x?y=http://other.example",
			"http://user:p%40ss@example.com/", "http://user@other.example@example.com/", "http://example.com./", "http://example.com.:80",
			"  http://example.com/\n", "http://example.com?q", "http://example.com#f", "http://example.com:/", "http://exampl%65.com/%zz",
			"http://%45xample%2Ecom", "http://example。com", "http://ｅｘａｍｐｌｅ．ｃｏｍ", "http://example｡com．", "http://exam\u00adple.com",
			"http://ExAmPlE.cOm/A\tb", "http://example.com/[::1]@other",
		},
		"xn--bcher-kva.example": {
			"http://BÜCHER.example", "http://bücher.example", "https://xn--bcher-kva.example:1/", "http://XN--BCHER-KVA.example.",
			"http://bu\u0308cher.example", "http://b%C3%BCcher.example",
		},
		"strasse.example":           {"http://strasse.example"},
		"xn--strae-oqa.example":     {"http://straße.example", "http://xn--strae-oqa.example"},
		"my_host.example":           {"http://my_host.example", "http://MY_HOST.example/"},
		"r3---sn-x.example":         {"http://r3---sn-x.example"},
		"-a-.example":               {"http://-A-.example"},
		"localhost":                 {"http://localhost:3000", "http://LOCALHOST"},
		"127.0.0.1":                 {"http://127.0.0.1", "http://127.0.0.1.:80", "http://127.1", "http://0x7f.0.0.1", "http://0177.0.0.01", "http://2130706433", "http://0X7F000001/", "http://１２７.0.0.1", "http://[::ffff:127.0.0.1]", "http://[::FFFF:7f00:1]:80"},
		"999.1.1.1":                 {"http://999.1.1.1"},
		"1.2.3.4.5":                 {"http://1.2.3.4.5"},
		"4294967296":                {"http://4294967296"},
		"2001:db8::1":               {"http://[2001:db8::1]", "http://[2001:DB8:0:0:0:0:0:1]:8080/x", "http://u@[2001:0db8::0001]?q"},
		"::1":                       {"http://[::1]", "http://[0:0:0:0:0:0:0:1]:80"},
		"fe80::1%eth0":              {"http://[fe80::1%25eth0]/", "http://[FE80::1%eth0]:80/"},
		label + ".example":          {"http://" + label + ".example", "http://" + strings.ToUpper(label) + ".EXAMPLE"},
		long:                        {"http://" + long, "http://" + long + ".:80/"},
		"xn--a.example":             {"http://xn--a.example", "http://XN--A.example"}, // not valid Punycode
		"sub.example.com":           {"http://sub.example.com"},
		"example.com.evil.example":  {"http://example.com.evil.example"},
		"xn--a-ecp.ru":              {"http://xn--a-ecp.ru"},
		"xn--n3h.net":               {"http://☃.net", "http://%E2%98%83.net"},
		"xn--80ak6aa92e.com":        {"http://аррӏе.com"},
		"xn--fsq.xn--0zwm56d":       {"http://例.测试", "http://例。测试"},
		"xn--mgbh0fb.xn--kgbechtv":  {"http://مثال.إختبار"},
		"0x.example":                {"http://0x.example"},
		"example.com-":              {"http://example.com-"},
		"a+b.example":               {"http://a+b.example"},
		"!$&'()*,;=~.example":       {"http://!$&'()*,;=~.example"},
		"2001:db8::1:0:0:1":         {"http://[2001:db8:0:0:1:0:0:1]"},
		"64:ff9b::102:304":          {"http://[64:ff9b::1.2.3.4]"},
		"xn--bcher-kva.xn--tst-qla": {"http://bücher.täst"},
	} {
		for _, url := range urls {
			got, err := hostKey(t, url)
			require.NoError(t, err, url)
			require.Equal(t, "host:"+want, got, url)
		}
	}
}

func TestHostErrors(t *testing.T) {
	for _, url := range []string{
		"", " ", "example.com", "//example.com", "/path", "ftp://hunter2@example.com", "file:///etc/hunter2", "mailto:a@b", "http:example.com",
		"http:/example.com", "http://", "https:///path", "http://?q", "http://#f", "http://:80", "http://user:hunter2@", "http://user:hunter2@:80/",
		"http://.", "http://..", "http://.example", "http://a..b", "http://example.com..", "http://example。。com",
		"http://exa mple.com", "http://exa\tmple.com", "http://exa\x00mple.com", "http://exa%00mple.com", "http://a%2Fb", "http://a%40b", "http://a%25b", "http://a%",
		"http://a%ff", "http://a\\hunter2@b.example", "http://a<b", "http://a|b", "http://a^b", "http://℀.example", "http://a：80",
		"http://example.com:http", "http://example.com:80:80", "http://example.com:-1", "http://2001:db8::1", "http://[::1", "http://[::1]x", "http://[::1]:x",
		"http://[127.0.0.1]", "http://[]", "http://[example.com]", "http://[::1%25]", "http://[::g]", "http://]", "http://\u00ad", "http://\u200d.example", "http://\ufffd.example",
		"http://" + strings.Repeat("ü", 100000) + ".example", "http://xn--" + strings.Repeat("a", 100000),
		"javascript://example.com", "http\x00://example.com",
	} {
		got, err := hostKey(t, url)
		require.ErrorContains(t, err, `"url"`, "%q: %s", url, got)
		require.NotContains(t, err.Error(), "hunter2")
		require.Empty(t, got)
	}
	for _, payload := range []string{`{"url":42}`, `{"url":null}`, `{"url":["http://a.example"]}`, `{"uri":"http://a.example"}`} {
		_, err := taskkey.Host("host", "url")([]byte(payload))
		require.ErrorContains(t, err, `"url"`, payload)
	}
}

func FuzzHost(f *testing.F) {
	for _, url := range []string{"http://bücher.example:80/", "http://[fe80::1%25a]", "https://u:p@0x7f.1", "http://xn--a", "http://%65。％", "http://xn--abc-", "http://\u200d"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		key, err := hostKey(t, url)
		if err != nil {
			require.Empty(t, key)
			return
		}
		host := strings.TrimPrefix(key, "host:")
		if strings.Contains(host, ":") {
			host = "[" + strings.ReplaceAll(host, "%", "%25") + "]"
		}
		again, err := hostKey(t, "https://user@"+host+":443/path")
		require.NoError(t, err, "%q: %q", url, host)
		require.Equal(t, key, again)
	})
}
