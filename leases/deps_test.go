package leases_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/simple-module/core/"

// dependencies lists what a program that imports the packages links besides
// the standard library.
func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)
	out, err := exec.Command("go", args...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	return strings.Fields(string(out))
}

func TestTheCoreImportsOnlyTheStandardLibrary(t *testing.T) {
	require.Equal(t, []string{module + "leases"}, dependencies(t, module+"leases"))
}

// heavy is what a program links only for the part that is named for it.
var heavy = []string{
	"github.com/redis/go-redis", "github.com/jackc/pgx", "modernc.org/sqlite", "github.com/riverqueue/",
	"github.com/hibiken/asynq", "github.com/pressly/goose", module + "migrations", module + "bootstrap", module + "middleware",
}

// TestABackendLinksOnlyItsOwnStore: a program pays for the store that it uses.
// leasetest is for backends of third parties too.
func TestABackendLinksOnlyItsOwnStore(t *testing.T) {
	for part, own := range map[string]string{
		"leases/redislease":  "github.com/redis/go-redis",
		"leases/pglease":     "github.com/jackc/pgx",
		"leases/sqlitelease": "modernc.org/sqlite",
		"leases/leasetest":   "github.com/stretchr/testify",
	} {
		linked := dependencies(t, module+part)
		require.Contains(t, linked, module+"leases")
		links := func(prefix string) bool {
			return slices.ContainsFunc(linked, func(path string) bool { return strings.HasPrefix(path, prefix) })
		}
		require.True(t, links(own), "%s links %s", part, own)
		for _, other := range heavy {
			require.False(t, other != own && links(other), "%s links %s", part, other)
		}
	}
}
