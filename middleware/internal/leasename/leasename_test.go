package leasename_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/middleware/internal/leasename"
)

func TestOf(t *testing.T) {
	long := strings.Repeat("x", leases.MaxName)
	for _, key := range []string{"a", "import:42", "ü", long, "a#sha256:", "#sha256:12"} {
		require.Equal(t, key, leasename.Of(key))
	}
	require.Empty(t, leasename.Of(""))

	hashed := []string{long + "y", long + "z", long + "é", "a\x00", "\xff", "\xfe", "a\x00\x00", strings.Repeat("é", 33) + long}
	seen := map[string]string{}
	for _, key := range hashed {
		name := leasename.Of(key)
		require.NotEqual(t, key, name)
		require.Empty(t, seen[name], "%q and %q", seen[name], key)
		seen[name] = key
		require.Equal(t, name, leasename.Of(key), "it must not change")
		require.NotEqual(t, name, leasename.Of(name), "a key that spells another's name would take it")
		h := leases.Lease(name, time.Minute, leases.On(leases.NewInProcess()))
		require.NoError(t, h.Acquire(context.Background()), "%q is not a name", name)
	}
	require.Equal(t, long[:64]+"#sha256:", leasename.Of(long + "y")[:64+len("#sha256:")])
}
