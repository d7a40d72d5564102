package taskkey_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/middleware/internal/taskkey"
)

func TestArgs(t *testing.T) {
	for _, c := range []struct {
		fields        []string
		payload, want string
	}{
		{[]string{"dataset"}, `{"dataset":42}`, `import:42`},
		{[]string{"dataset"}, `{"dataset":"berlin"}`, `import:"berlin"`},
		{[]string{"dataset"}, `{"dataset":"42"}`, `import:"42"`},
		{[]string{"dataset"}, `{"dataset":null}`, `import:null`},
		{[]string{"dataset"}, `{"dataset":""}`, `import:""`},
		{[]string{"b", "a"}, `{"a":1,"b":true}`, `import:true,1`},
		{[]string{"a", "b"}, `{"a":"a:b","b":"c"}`, `import:"a:b","c"`},
		{[]string{"a", "b"}, `{"a":"a","b":"b:c"}`, `import:"a","b:c"`},
		{[]string{"a", "b"}, `{"a":"x\",\"y","b":"z"}`, `import:"x\",\"y","z"`},
		{[]string{"a"}, `{"a":{"z":[1.0, 2e0],"b":{"y":1,"x":"<&>"}}}`, `import:{"b":{"x":"<&>","y":1},"z":[1,2]}`},
		{[]string{"a"}, `{"a":1,"a":2}`, `import:2`},
		{[]string{"a"}, `{"a":{"b":1,"b":2}}`, `import:{"b":2}`},
		{[]string{"a"}, `{"a":"\u0041\/\u00e4\ud83d\ude00\t\u0000"}`, `import:"A/ä😀\t\u0000"`},
		{[]string{"a"}, `{"a":"\\ud83d"}`, `import:"\\ud83d"`},
		{[]string{""}, `{"":1}`, `import:1`},
		{nil, ` { "b" : [ ] , "a" : 1e2 } ` + "\n", `import:{"a":100,"b":[]}`},
		{nil, `{}`, `import:{}`},
	} {
		got, err := taskkey.Args("import", c.fields...)([]byte(c.payload))
		require.NoError(t, err, c.payload)
		require.Equal(t, c.want, got)
	}
}

func TestArgsNumbers(t *testing.T) {
	key := taskkey.Args("n", "v")
	seen := map[string]string{}
	for _, same := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "1E+0", "0.1e1", "0.001e3", "1.000", "1000e-0003"},
		{"0", "-0", "0.0", "0e999999999999999999999", "-0.0e-5"},
		{"100", "1e2", "1E+02", "100.00"},
		{"-1.5", "-15e-1", "-0.15E1"},
		{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		{"9007199254740992"},
		{"18446744073709551617"},
		{"0.1", "1e-1", "0.10"},
		{"0.1000000000000000055511151231257827"},
		{"1e400", "1" + strings.Repeat("0", 400), "10e399", "0.1e401", "1" + strings.Repeat("0", 400) + ".000"},
		{"1e401"},
		{"1e-400", "0." + strings.Repeat("0", 399) + "1"},
		{"1e21", "1000000000000000000000"},
		{"1e20", "100000000000000000000"},
		{"1e999999999999999999999", "10e999999999999999999998"},
		{"1e999999999999999999998"},
		{"1e-999999999999999999999"},
	} {
		first, err := key(fmt.Appendf(nil, `{"v":%s}`, same[0]))
		require.NoError(t, err)
		require.Less(t, len(first), 64, "it must not be expanded")
		require.Empty(t, seen[first], "%s and %s", seen[first], same[0])
		seen[first] = same[0]
		for _, number := range same {
			got, err := key(fmt.Appendf(nil, `{"v":%s}`, number))
			require.NoError(t, err)
			require.Equal(t, first, got, number)
		}
		canonical := strings.TrimPrefix(first, "n:")
		again, err := key(fmt.Appendf(nil, `{"v":%s}`, canonical))
		require.NoError(t, err)
		require.Equal(t, first, again, "its own form")
	}
}

func TestArgsErrors(t *testing.T) {
	const secret = "hunter2"
	for _, c := range []struct{ payload, says string }{
		{``, "not valid JSON"},
		{`hunter2`, "not valid JSON"},
		{`{"a":1`, "not valid JSON"},
		{`{"a":01}`, "not valid JSON"},
		{`{"a":NaN}`, "not valid JSON"},
		{"{\"a\":\"hunter2\n\"}", "not valid JSON"},
		{`null`, "not a JSON object"},
		{`[1]`, "not a JSON object"},
		{`"hunter2"`, "not a JSON object"},
		{`{"a":1} {"a":2}`, "more than one"},
		{`{"a":1}]`, "more than one"},
		{`{"a":1}hunter2`, "more than one"},
		{"{\"a\":\"hunter2\xff\"}", "UTF-8"},
		{`{"password":"hunter2"}`, `no field "a"`},
		{`{"A":"hunter2"}`, `no field "a"`},
		{`{"a":"\ud800"}`, "surrogate"},
		{`{"a":"\udc00"}`, "surrogate"},
		{`{"a":"\ud83d\ud83d\ude00"}`, "surrogate"},
		{`{"a":"\ud83d\n"}`, "surrogate"},
		{`{"a":"\\\ud83d"}`, "surrogate"},
		{`{"a":1,"\udfff":2}`, "surrogate"},
		{`{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "depth"},
	} {
		for _, key := range []func([]byte) (string, error){taskkey.Args("import", "a"), taskkey.Host("import", "a")} {
			got, err := key([]byte(c.payload))
			require.ErrorContains(t, err, c.says, c.payload)
			require.ErrorContains(t, err, `"import"`)
			require.NotContains(t, err.Error(), secret)
			require.Empty(t, got)
		}
	}
}

func TestNameAndOwner(t *testing.T) {
	long := strings.Repeat("ä", 300)
	require.Equal(t, "import:42", taskkey.Name("import:42"))
	require.Equal(t, "river:1:2", taskkey.Owner("river:1:2"))
	require.LessOrEqual(t, len(taskkey.Name(long)), 512)
	require.LessOrEqual(t, len(taskkey.Owner(long)), 256)
	require.NotEqual(t, taskkey.Owner(long+"a"), taskkey.Owner(long+"b"))
	require.Equal(t, strings.Repeat("o", 256), taskkey.Owner(strings.Repeat("o", 256)))
	require.NotEqual(t, strings.Repeat("o", 257), taskkey.Owner(strings.Repeat("o", 257)))
}

func FuzzArgs(f *testing.F) {
	f.Add([]byte(`{"v":{"b":[1e2,-0.10,"\ud83d\ude00<"],"a":null,"a":true}}`))
	f.Add([]byte(`{"v":1e-30}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, key := range []func([]byte) (string, error){taskkey.Args("k"), taskkey.Args("k", "v")} {
			want, err := key(payload)
			if err != nil {
				require.Empty(t, want)
				continue
			}
			got, err := key(respell(t, payload))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		if whole, err := taskkey.Args("")(payload); err == nil {
			again, err := taskkey.Args("")([]byte(whole[1:]))
			require.NoError(t, err)
			require.Equal(t, whole, again, "the canonical form is its own")
		}
	})
}

// respell writes the same JSON with other spaces and escapes.
func respell(t *testing.T, payload []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	out, err := json.MarshalIndent(v, " ", "\t")
	require.NoError(t, err)
	var b bytes.Buffer
	for _, r := range string(out) {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04X`, unit)
		}
	}
	return b.Bytes()
}
