package httplease_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
)

// backends has a fresh one of each kind.
func backends(t *testing.T) map[string]leases.Backend {
	t.Helper()
	db, err := sqlitelease.Open(teststore.SQLitePath(t))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec(`CREATE TABLE sm_lease (name TEXT, slot INTEGER, holder TEXT, fence BIGINT, expires_at INTEGER, PRIMARY KEY (name, slot)) WITHOUT ROWID`)
	require.NoError(t, err)
	return map[string]leases.Backend{
		"in-process": leases.NewInProcess(),
		"sqlite":     sqlitelease.New(db),
	}
}

// onEach runs the same test on each kind of backend.
func onEach(t *testing.T, test func(*testing.T, leases.Backend)) {
	t.Helper()
	for name, b := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}
