package bootstrap_test

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
)

// secret is the password in all URLs that fail.
const secret = "hunter2%25!"

// TestStartFails: with an error that says what to do, without a password, and
// with the process-wide backend as it was.
func TestStartFails(t *testing.T) {
	refused, telling := closedPort(t), tellingRedis(t)
	redisURL := teststore.RedisURL(t)
	private, _ := startRedis(t, false, `save ""`, `requirepass "the right one"`, "user nobody on >hunter2%! ~* +ping +client")
	noCluster, _ := startRedis(t, false, `save ""`, "requirepass hunter2%!")
	replica, _ := startRedis(t, false, `save ""`, "replicaof "+strings.ReplaceAll(refused, ":", " "))
	sentinel, _ := startRedis(t, true)
	noTable := teststore.PostgresURL(t)
	ready := migrated(t, bootstrap.Settings{DatabaseURL: teststore.PostgresURL(t)}).DatabaseURL

	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return "sqlite:" + path
	}
	otherTable := "sqlite:" + filepath.Join(dir, "other.db")
	db, _, err := bootstrap.Settings{DatabaseURL: otherTable}.OpenDatabase(t.Context())
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE sm_lease (name TEXT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())

	tests := map[string]struct {
		redis, database string
		timeout         time.Duration
		says            []string
	}{
		"redis unreachable":          {redis: "redis://user:SECRET@" + refused, says: []string{"Redis at " + refused, "connection refused", "is it running", "SM_REDIS_URL"}},
		"redis unreachable, TLS":     {redis: "rediss://user:SECRET@" + refused, says: []string{"Redis at " + refused, "connection refused"}},
		"redis without a socket":     {redis: "unix://user:SECRET@" + dir + "/none.sock", says: []string{"Redis at " + dir + "/none.sock", "no such file"}},
		"redis wrong password":       {redis: as("someone", redisURL), says: []string{"Redis at", "WRONGPASS", "is SM_REDIS_URL right?"}},
		"redis no password":          {redis: "redis://" + private, says: []string{"Redis at " + private, "NOAUTH", "is SM_REDIS_URL right?"}},
		"redis without rights":       {redis: "redis://nobody:SECRET@" + private, says: []string{"Redis at " + private, "NOPERM"}},
		"redis replica":              {redis: "redis://" + replica, says: []string{"Redis at " + replica, "read-only replica", "set SM_REDIS_URL to its master"}},
		"redis that tells":           {redis: "redis://user:SECRET@" + telling, says: []string{"Redis at " + telling, "you said"}},
		"redis bad url":              {redis: "redis://user:SECRET@host:port", says: []string{"SM_REDIS_URL", "redis://[user:password@]host:port[/db]"}},
		"redis, and a good database": {redis: "redis://user:SECRET@" + refused, database: ready, says: []string{"Redis at " + refused}},
		"cluster unreachable":        {redis: "redis://user:SECRET@" + refused + "?addr=" + refused, says: []string{"Redis at " + refused, "connection refused"}},
		"cluster that is none":       {redis: "redis://:SECRET@" + noCluster + "?addr=" + noCluster, says: []string{"cluster support disabled"}},
		"sentinel unreachable":       {redis: "redis://user:SECRET@" + refused + "?master_name=main&password=SECRET", timeout: 2 * time.Second, says: []string{"the Sentinels " + refused, "is it running"}},
		"sentinel, unknown master":   {redis: "redis://" + sentinel + "?master_name=main&password=SECRET", says: []string{"the Sentinels " + sentinel}},
		"sentinel without its name":  {redis: "redis://" + sentinel, says: []string{"it is a Sentinel", "?master_name="}},
		"postgres unreachable":       {database: "postgres://user:SECRET@" + refused + "/app", says: []string{"Postgres at 127.0.0.1:", `database "app"`, "connection refused", "is it running", "SM_DATABASE_URL"}},
		"postgres refuses the role":  {database: as("someone", ready), says: []string{`"someone"`, "SQLSTATE 28", "is SM_DATABASE_URL right?"}},
		"postgres that tells":        {database: "postgres://user:SECRET@" + tellingPostgres(t) + "/app?sslmode=disable", says: []string{"you said", "SQLSTATE 28P01"}},
		"postgres without database":  {database: strings.Replace(ready, "/sm_test", "/no_sm_test", 1), says: []string{"does not exist", "SQLSTATE 3D000"}},
		"postgres without the table": {database: noTable + "&application_name=left-open", says: []string{"sm_lease does not exist", "make migrate", "migrations.Up"}},
		"postgres without rights":    {database: asReader(t, ready), says: []string{"needs SELECT, INSERT and UPDATE"}},
		"postgres read-only":         {database: ready + "&default_transaction_read_only=on", says: []string{"read-only transaction"}},
		"postgres bad url":           {database: "postgres://user:SECRET@host:port/x", says: []string{"SM_DATABASE_URL", "postgres://user:password@host:port/database"}},
		"sqlite without the file":    {database: "sqlite:none.db", says: []string{"/bootstrap/none.db", "does not exist", "make migrate"}},
		"sqlite without the table":   {database: file("empty.db", ""), says: []string{"empty.db", "sm_lease does not exist", "make migrate"}},
		"sqlite with another table":  {database: otherTable, says: []string{"other.db", "no such column"}},
		"sqlite that is none":        {database: file("text.db", strings.Repeat("text", 1000)), says: []string{"text.db", "not a database"}},
		"sqlite that is a folder":    {database: "sqlite:" + dir, says: []string{dir, "can't be used"}},
		"sqlite in memory":           {database: "sqlite::memory:", says: []string{"excludes no other process"}},
		"unknown database":           {database: "mysql://user:SECRET@host/x", says: []string{"SM_DATABASE_URL must be one of: postgres://"}},
	}
	t.Run("all", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				before := leases.Default()
				var log bytes.Buffer
				put := func(raw string) string { return strings.ReplaceAll(raw, "SECRET", secret) }
				rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{
					RedisURL: put(test.redis), DatabaseURL: put(test.database),
					Timeout: cmp.Or(test.timeout, hang), Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				require.Error(t, err)
				require.Nil(t, rt)
				for _, part := range test.says {
					require.ErrorContains(t, err, part)
				}
				require.NotContains(t, err.Error(), "\n")
				require.NotContains(t, err.Error()+log.String()+redisLog.String(), "hunter2")
				require.Equal(t, before, leases.Default())
			})
		}
	})
	require.NoFileExists(t, "none.db")

	c, err := pgx.Connect(t.Context(), noTable)
	require.NoError(t, err)
	defer c.Close(context.Background())
	require.Eventually(t, func() bool {
		var n int
		err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'left-open'").Scan(&n)
		return err == nil && n == 0
	}, hang, 10*time.Millisecond)
}

// as puts a role or user of that name, with the secret, into the URL.
func as(user, raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword(user, "hunter2%!")
	return u.String()
}

// asReader is the URL with a role that may only read.
func asReader(t *testing.T, raw string) string {
	t.Helper()
	role := "sm_test_reader_" + filepath.Base(t.TempDir()) + "_" + strings.ToLower(time.Now().Format("150405000000000"))
	run := func(ctx context.Context, statements ...string) {
		c, err := pgx.Connect(ctx, raw)
		require.NoError(t, err)
		defer c.Close(ctx)
		for _, s := range statements {
			_, err := c.Exec(ctx, strings.ReplaceAll(s, "ROLENAME", role))
			require.NoError(t, err)
		}
	}
	run(t.Context(), "CREATE ROLE ROLENAME LOGIN PASSWORD 'hunter2%!'", "GRANT SELECT ON sm_lease TO ROLENAME")
	t.Cleanup(func() { run(context.Background(), "DROP OWNED BY ROLENAME", "DROP ROLE ROLENAME") })
	return as(role, raw)
}

// TestStartIsBounded: a store that accepts connections and never answers keeps
// neither Start beyond its time or ctx, whatever the driver's own time-outs,
// nor a connection.
func TestStartIsBounded(t *testing.T) {
	for name, raw := range map[string]string{
		"redis":        "redis://user:SECRET@ADDR?dial_timeout=60&read_timeout=60",
		"redis TLS":    "rediss://user:SECRET@ADDR?dial_timeout=2",
		"cluster":      "redis://user:SECRET@ADDR?addr=ADDR&dial_timeout=60&read_timeout=60",
		"sentinel":     "redis://user:SECRET@ADDR?master_name=main&dial_timeout=2&read_timeout=2",
		"postgres":     "postgres://user:SECRET@ADDR/app",
		"postgres TLS": "postgres://user:SECRET@ADDR/app?sslmode=require",
		"idle conns":   "postgres://user:SECRET@ADDR/app?pool_min_conns=3&connect_timeout=2",
	} {
		for _, way := range []string{"timeout", "cancelled"} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				addr, closed := blackHole(t)
				raw := strings.NewReplacer("SECRET", secret, "ADDR", addr).Replace(raw)
				s := bootstrap.Settings{Logger: slog.New(slog.DiscardHandler), Timeout: time.Hour}
				if strings.HasPrefix(raw, "redis") {
					s.RedisURL = raw
				} else {
					s.DatabaseURL = raw
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				want := context.Canceled
				if way == "timeout" {
					want, s.Timeout = context.DeadlineExceeded, 300*time.Millisecond
				} else {
					time.AfterFunc(300*time.Millisecond, cancel)
				}
				started := time.Now()
				_, err := bootstrap.Start(ctx, s)
				require.ErrorIs(t, err, want)
				require.ErrorContains(t, err, addr)
				require.NotContains(t, err.Error(), "hunter2")
				require.Less(t, time.Since(started), hang/2)
				select {
				case <-closed:
				case <-time.After(hang):
					require.Fail(t, "the connection stays open")
				}
			})
		}
	}
}

// TestHealth: an error of Health says what happened, without the password.
func TestHealth(t *testing.T) {
	addr, stop := startRedis(t, false, `save ""`, `requirepass "hunter2%!"`)
	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{RedisURL: "redis://:" + secret + "@" + addr, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer leases.Configure(nil)
	defer rt.Close(context.Background())
	require.NoError(t, rt.Health(t.Context()))
	stop()
	err = rt.Health(t.Context())
	require.ErrorContains(t, err, "Redis at "+addr)
	require.ErrorContains(t, err, "is it running")
	require.NotContains(t, err.Error(), "hunter2")

	s := migrated(t, bootstrap.Settings{DatabaseURL: teststore.PostgresURL(t)})
	s.Logger = slog.New(slog.DiscardHandler)
	rt, err = bootstrap.Start(t.Context(), s)
	require.NoError(t, err)
	defer rt.Close(context.Background())
	require.NoError(t, rt.Health(t.Context()))
	_, err = rt.Pool().Exec(t.Context(), "DROP TABLE sm_lease")
	require.NoError(t, err)
	require.ErrorContains(t, rt.Health(t.Context()), "make migrate")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, rt.Health(ctx), context.Canceled)
}
