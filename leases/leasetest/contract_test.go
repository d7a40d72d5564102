package leasetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheContractNamesTheTests: docs/contract.md names every subtest of the
// suite, and no test that does not exist.
func TestTheContractNamesTheTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/contract.md")
	require.NoError(t, err)
	exist := make(map[string]bool)
	for _, r := range rules {
		require.Contains(t, string(text), "`"+r.name+"`")
		exist[r.name] = true
	}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, f := range function.FindAllSubmatch(code, -1) {
			exist[string(f[1])] = true
		}
		return err
	}))
	for _, name := range regexp.MustCompile("`((?:R|Case|Test)[0-9A-Z]\\w*_[\\w-]+|Test\\w{4,})`").FindAllStringSubmatch(string(text), -1) {
		require.True(t, exist[name[1]], "there is no test %s", name[1])
	}
}
