package bootstrap_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/migrations"
)

const hang = time.Minute // a bound on a hang, not a measure

// stores are settings of a store that is ready.
var stores = map[string]func(t *testing.T) bootstrap.Settings{
	"redis": func(t *testing.T) bootstrap.Settings {
		return bootstrap.Settings{RedisURL: teststore.RedisURL(t)}
	},
	"postgres": func(t *testing.T) bootstrap.Settings {
		return migrated(t, bootstrap.Settings{DatabaseURL: teststore.PostgresURL(t)})
	},
	"sqlite": func(t *testing.T) bootstrap.Settings {
		return migrated(t, bootstrap.Settings{DatabaseURL: "sqlite:" + teststore.SQLitePath(t)})
	},
}

func migrated(t *testing.T, s bootstrap.Settings) bootstrap.Settings {
	t.Helper()
	db, dialect, err := s.OpenDatabase(t.Context())
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, migrations.Up(t.Context(), db, dialect))
	return s
}

func TestStart(t *testing.T) {
	for kind, settings := range stores {
		t.Run(kind, func(t *testing.T) {
			s := settings(t)
			var log bytes.Buffer
			s.Logger = slog.New(slog.NewTextHandler(&log, nil))
			rt, err := bootstrap.Start(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, kind, rt.Kind())
			require.Equal(t, rt.Backend(), leases.Default())
			require.Equal(t, kind == "redis", rt.Redis() != nil)
			require.Equal(t, kind == "postgres", rt.Pool() != nil)
			require.Equal(t, kind == "sqlite", rt.SQLite() != nil)
			require.NoError(t, rt.Health(t.Context()))
			require.Contains(t, log.String(), "backend="+kind)
			require.NoError(t, leases.Lease("bootstrap", time.Minute).Do(t.Context(), func(context.Context) error { return nil }))

			require.NoError(t, rt.Close(t.Context()))
			require.NoError(t, rt.Close(t.Context()))
			require.Error(t, rt.Health(t.Context()))
			_, err = leases.Lease("bootstrap", time.Minute).TryAcquire(t.Context())
			require.ErrorContains(t, err, "the store was closed", "no fallback to this process only")
			leases.Configure(nil)
		})
	}
}

func TestStartInProcess(t *testing.T) {
	var log bytes.Buffer
	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Equal(t, "in-process", rt.Kind())
	require.Contains(t, log.String(), "one process only")
	require.NoError(t, rt.Health(t.Context()))
	require.NoError(t, rt.Close(t.Context()))
	leases.Configure(nil)
}

// TestCloseLeavesAnotherBackend: what was configured since is not touched.
func TestCloseLeavesAnotherBackend(t *testing.T) {
	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	other := leases.NewInProcess()
	leases.Configure(other)
	defer leases.Configure(nil)
	require.NoError(t, rt.Close(t.Context()))
	require.Equal(t, other, leases.Default())
}
