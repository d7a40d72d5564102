package bootstrap

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromEnv(t *testing.T) {
	t.Setenv("SM_REDIS_URL", "  redis://127.0.0.1:6379/3\n")
	t.Setenv("SM_DATABASE_URL", "")
	t.Setenv("SM_REDIS_PREFIX", "app:")
	s, err := FromEnv()
	require.NoError(t, err)
	require.Equal(t, Settings{RedisURL: "redis://127.0.0.1:6379/3", RedisPrefix: "app:"}, s)

	for variable, value := range map[string]string{
		"SM_REDIS_URL":    "http://127.0.0.1",
		"SM_DATABASE_URL": "mysql://127.0.0.1",
	} {
		t.Setenv("SM_REDIS_URL", "")
		t.Setenv("SM_DATABASE_URL", "")
		t.Setenv(variable, value)
		_, err = FromEnv()
		require.ErrorContains(t, err, variable+" ")
	}
}

func TestRedisURLs(t *testing.T) {
	single := func(url, addr string, db int) {
		o, err := parseRedisURL(url)
		require.NoError(t, err, url)
		require.NotNil(t, o.single, url)
		require.Equal(t, addr, o.single.Addr)
		require.Equal(t, db, o.single.DB)
	}
	single("redis://host:6380/3", "host:6380", 3)
	single("redis://host", "host:6379", 0)
	single("redis://user:p%40ss@host:6380?db=2&dial_timeout=3", "host:6380", 2)
	single("unix:///run/redis.sock?db=1", "/run/redis.sock", 1)
	o, err := parseRedisURL("rediss://host:6380")
	require.NoError(t, err)
	require.NotNil(t, o.single.TLSConfig)

	o, err = parseRedisURL("redis://user:pw@a:1?addr=b:2&addr=c:3")
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2", "c:3"}, o.cluster.Addrs)
	require.Equal(t, "pw", o.cluster.Password)

	o, err = parseRedisURL("redis://a:1/4?master_name=main&addr=b:2")
	require.NoError(t, err)
	require.Equal(t, "main", o.failover.MasterName)
	require.Equal(t, []string{"a:1", "b:2"}, o.failover.SentinelAddrs)
	require.Equal(t, 4, o.failover.DB)
}

func TestDatabaseURLs(t *testing.T) {
	for url, path := range map[string]string{
		"sqlite:relative.db":               "relative.db",
		"sqlite:/absolute.db":              "/absolute.db",
		"sqlite:///relative.db":            "relative.db",
		"sqlite:////absolute.db":           "/absolute.db",
		"sqlite+aiosqlite:////absolute.db": "/absolute.db",
		"SQLite:///dir/with space 100%.db": "dir/with space 100%.db",
	} {
		o, err := parseDatabaseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, path, o.sqlite, url)
	}
	for _, url := range []string{
		"postgres://user:p%40ss@host:5433/app?sslmode=require",
		"postgresql://user:p%40ss@host:5433/app?sslmode=require",
		"postgresql+asyncpg://user:p%40ss@host:5433/app?ssl=require",
	} {
		o, err := parseDatabaseURL(url)
		require.NoError(t, err, url)
		c := o.pool.ConnConfig
		require.Equal(t, "host", c.Host)
		require.EqualValues(t, 5433, c.Port)
		require.Equal(t, "app", c.Database)
		require.Equal(t, "p@ss", c.Password)
		require.NotNil(t, c.TLSConfig, url)
		require.Equal(t, "leases", c.RuntimeParams["application_name"])
	}
	o, err := parseDatabaseURL("postgres://host/app?pool_max_conns=3&application_name=mine")
	require.NoError(t, err)
	require.EqualValues(t, 3, o.pool.MaxConns)
	require.Equal(t, "mine", o.pool.ConnConfig.RuntimeParams["application_name"])
}

// TestBadURLs: each message names the variable and what may be there, and none
// has a secret in it.
func TestBadURLs(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{
		"redis", "redis://", "127.0.0.1:6379", "http://user:hunter2@host", "redis://user:hunter2@host:port",
		"redis://user:hun ter2/hunter2@host", "redis://user:hunter2@host/db", "redis://host?password=hunter2",
		"redis://user:hunter2@host?no_such=option", "redis://user:hunter2@host?dial_timeout=hunter2",
		"redis://user:hunter2@host:1?addr=", "://hunter2", "redis://user:%zzhunter2@host",
	} {
		_, err := parseRedisURL(url)
		if err == nil {
			continue // go-redis takes it; Start fails then
		}
		require.ErrorContains(t, err, "SM_REDIS_URL", url)
		require.ErrorContains(t, err, "redis://[user:password@]host:port[/db]", url)
		require.NotContains(t, err.Error(), secret, url)
	}
	for _, url := range []string{
		"postgres", "mysql://user:hunter2@host/app", "postgres://user:hunter2@host:port/app",
		"postgres://user:hun ter2/hunter2@host/app", "postgres://user:hunter2@host/app?sslmode=no",
		"postgres://host/app?password=hunter2&sslmode=no", "postgres://user:%zzhunter2@host/app",
		"postgres://user:hunter2@host/app?pool_max_conns=hunter2",
		"sqlite:", "sqlite://", "sqlite::memory:", "sqlite:///:memory:", "sqlite://host/x.db", "sqlite:///x.db?mode=memory", "/x.db",
	} {
		_, err := parseDatabaseURL(url)
		require.Error(t, err, url)
		require.ErrorContains(t, err, "SM_DATABASE_URL", url)
		require.NotContains(t, err.Error(), secret, url)
	}
}

func TestScrub(t *testing.T) {
	for _, url := range []string{
		"redis://user:p%40ss@host", "postgres://host/x?password=p%40ss", "postgres://host/x?sslpassword=p@ss",
	} {
		text := scrub("failed: p@ss, p%40ss in "+url, url)
		require.NotContains(t, text, "p@ss", url)
		require.NotContains(t, text, "p%40ss", url)
		require.True(t, strings.HasPrefix(text, "failed: xxxxx, xxxxx in "), text)
	}
}

func TestOlder(t *testing.T) {
	require.True(t, older("6.0.16", 6, 2))
	require.True(t, older("5.0.7", 6, 2))
	require.False(t, older("6.2.0", 6, 2))
	require.False(t, older("7.0.15", 6, 2))
	require.False(t, older("unknown", 6, 2))
}
