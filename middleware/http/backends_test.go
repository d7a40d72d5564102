package httplease_test

import (
	"testing"

	"github.com/simple-module/core/internal/testbackends"
	"github.com/simple-module/core/leases"
)

// onEach runs the same test, with the same handlers, on each kind of backend.
func onEach(t *testing.T, test func(*testing.T, leases.Backend)) {
	t.Helper()
	for name, newBackend := range testbackends.All {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBackend(t))
		})
	}
}
