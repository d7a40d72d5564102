package bootstrap_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
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

// TestStartFails: with an error that says what to do, without a password, and
// with the process-wide backend as it was.
func TestStartFails(t *testing.T) {
	const secret = "hunter2"
	closedPort, blackHole := closedPort(t), blackHole(t)
	withPassword := func(raw string) string {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		u.User = url.UserPassword("nobody-here", secret)
		return u.String()
	}
	noTable := filepath.Join(t.TempDir(), "no-table.db")
	db, _, err := bootstrap.Settings{DatabaseURL: "sqlite:" + noTable}.OpenDatabase(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	noRights := migrated(t, bootstrap.Settings{DatabaseURL: teststore.PostgresURL(t)}).DatabaseURL

	for name, test := range map[string]struct {
		settings bootstrap.Settings
		says     []string
	}{
		"redis unreachable": {
			bootstrap.Settings{RedisURL: "redis://user:hunter2@" + closedPort}, []string{"Redis at " + closedPort, "connection refused", "is it running", "SM_REDIS_URL"}},
		"redis black hole": {
			bootstrap.Settings{RedisURL: "redis://user:hunter2@" + blackHole, Timeout: 300 * time.Millisecond}, []string{"Redis at " + blackHole}},
		"redis wrong password": {
			bootstrap.Settings{RedisURL: withPassword(teststore.RedisURL(t))}, []string{"Redis at", "WRONGPASS"}},
		"redis bad url": {
			bootstrap.Settings{RedisURL: "redis://user:hunter2@host:port"}, []string{"SM_REDIS_URL", "redis://[user:password@]host:port[/db]"}},
		"cluster unreachable": {
			bootstrap.Settings{RedisURL: "redis://user:hunter2@" + closedPort + "?addr=" + closedPort, Timeout: 2 * time.Second}, []string{closedPort}},
		"sentinel unreachable": {
			bootstrap.Settings{RedisURL: "redis://user:hunter2@" + closedPort + "?master_name=main", Timeout: 2 * time.Second}, []string{"Sentinels " + closedPort}},
		"postgres unreachable": {
			bootstrap.Settings{DatabaseURL: "postgres://user:hunter2@" + closedPort + "/app"}, []string{"Postgres at 127.0.0.1:", `database "app"`, "connection refused", "SM_DATABASE_URL"}},
		"postgres black hole": {
			bootstrap.Settings{DatabaseURL: "postgres://user:hunter2@" + blackHole + "/app", Timeout: 300 * time.Millisecond}, []string{"Postgres at 127.0.0.1:", "no answer in time"}},
		"postgres unknown role": {
			bootstrap.Settings{DatabaseURL: withPassword(teststore.PostgresURL(t))}, []string{"nobody-here", "does not exist"}},
		"postgres without the table": {
			bootstrap.Settings{DatabaseURL: teststore.PostgresURL(t)}, []string{"sm_lease does not exist", "make migrate", "migrations.Up"}},
		"postgres without rights": {
			bootstrap.Settings{DatabaseURL: asReader(t, noRights)}, []string{"needs SELECT, INSERT and UPDATE"}},
		"postgres bad url": {
			bootstrap.Settings{DatabaseURL: "postgres://user:hunter2@host:port/x"}, []string{"SM_DATABASE_URL", "postgres://user:password@host:port/database"}},
		"sqlite without the file": {
			bootstrap.Settings{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "none.db")}, []string{"none.db", "does not exist", "make migrate"}},
		"sqlite without the table": {
			bootstrap.Settings{DatabaseURL: "sqlite:" + noTable}, []string{"no-table.db", "sm_lease does not exist", "make migrate"}},
		"sqlite in memory": {
			bootstrap.Settings{DatabaseURL: "sqlite::memory:"}, []string{"excludes no other process"}},
		"unknown database": {
			bootstrap.Settings{DatabaseURL: "mysql://user:hunter2@host/x"}, []string{"SM_DATABASE_URL must be one of: postgres://"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := leases.Default()
			var log bytes.Buffer
			test.settings.Logger = slog.New(slog.NewTextHandler(&log, nil))
			start := time.Now()
			rt, err := bootstrap.Start(t.Context(), test.settings)
			require.Error(t, err)
			require.Nil(t, rt)
			for _, part := range test.says {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error()+log.String(), secret)
			require.Equal(t, before, leases.Default())
			require.Less(t, time.Since(start), hang)
		})
	}
}

// asReader is the URL with a role that may only read.
func asReader(t *testing.T, raw string) string {
	t.Helper()
	c, err := pgx.Connect(t.Context(), raw)
	require.NoError(t, err)
	defer c.Close(t.Context())
	role := "reader_" + strings.ToLower(time.Now().Format("150405.000000000"))
	role = strings.ReplaceAll(role, ".", "_")
	for _, statement := range []string{"CREATE ROLE " + role + " LOGIN PASSWORD 'hunter2'", "GRANT SELECT ON sm_lease TO " + role} {
		_, err = c.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), raw)
		if err == nil {
			defer c.Close(context.Background())
			c.Exec(context.Background(), "DROP OWNED BY "+role)
			c.Exec(context.Background(), "DROP ROLE "+role)
		}
	})
	u, err := url.Parse(raw)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "hunter2")
	return u.String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return l.Addr().String()
}

// TestStartFindsTheCluster behind the URL of one of its servers.
func TestStartFindsTheCluster(t *testing.T) {
	addr := closedPort(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--cluster-enabled", "yes",
		"--cluster-port", strings.Split(closedPort(t), ":")[1], "--dir", t.TempDir(), "--save", "")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	node := redis.NewClient(&redis.Options{Addr: addr})
	defer node.Close()
	require.Eventually(t, func() bool { return node.Ping(t.Context()).Err() == nil }, hang, 10*time.Millisecond)
	require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := node.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, hang, 10*time.Millisecond)

	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{RedisURL: "redis://" + addr})
	require.NoError(t, err)
	defer leases.Configure(nil)
	defer rt.Close(context.Background())
	require.IsType(t, &redis.ClusterClient{}, rt.Redis())
	require.NoError(t, leases.Lease("{x", time.Minute).Do(t.Context(), func(context.Context) error { return nil }))
}
