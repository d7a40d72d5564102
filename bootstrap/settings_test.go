package bootstrap

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestFromEnv(t *testing.T) {
	t.Setenv("SM_REDIS_URL", "  redis://127.0.0.1:6379/3\n")
	t.Setenv("SM_DATABASE_URL", "")
	t.Setenv("SM_REDIS_PREFIX", "app:")
	s, err := FromEnv()
	require.NoError(t, err)
	require.Equal(t, Settings{RedisURL: "redis://127.0.0.1:6379/3", RedisPrefix: "app:"}, s)

	for _, test := range []struct{ variable, redis, database, prefix string }{
		{"SM_REDIS_URL", "redis://127.0.0.1/x", "", ""},
		{"SM_REDIS_URL", "http://127.0.0.1", "", ""},
		{"SM_REDIS_URL", "127.0.0.1:6379", "sqlite:good.db", ""},
		{"SM_DATABASE_URL", " ", "mysql://127.0.0.1", ""},
		{"SM_REDIS_PREFIX", "redis://127.0.0.1", "", "app{1}:"},
	} {
		t.Setenv("SM_REDIS_URL", test.redis)
		t.Setenv("SM_DATABASE_URL", test.database)
		t.Setenv("SM_REDIS_PREFIX", test.prefix)
		s, err := FromEnv()
		require.ErrorContains(t, err, test.variable)
		rt, err := Start(t.Context(), s)
		require.ErrorContains(t, err, test.variable, "an error that was passed over comes again")
		require.Nil(t, rt)
	}

	// The application's own database, when leases are kept in Redis.
	t.Setenv("SM_REDIS_URL", "redis://127.0.0.1")
	t.Setenv("SM_DATABASE_URL", "mysql+asyncmy://127.0.0.1/app")
	t.Setenv("SM_REDIS_PREFIX", "")
	_, err = FromEnv()
	require.NoError(t, err)
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
	single("unix:///run/@redis.sock", "/run/@redis.sock", 0)
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

func TestSQLiteURLs(t *testing.T) {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for url, path := range map[string]string{
		"sqlite:relative.db":               dir + "/relative.db",
		"sqlite:./relative.db":             dir + "/relative.db",
		"sqlite:/absolute.db":              "/absolute.db",
		"sqlite:///relative.db":            dir + "/relative.db",
		"sqlite:////absolute.db":           "/absolute.db",
		"sqlite+aiosqlite:///relative.db":  dir + "/relative.db",
		"sqlite+aiosqlite:////absolute.db": "/absolute.db",
		"SQLite:////dir/a b 100%41 #1.db":  "/dir/a b 100%41 #1.db",
	} {
		o, err := parseDatabaseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, path, o.file, url)
	}
}

func TestPostgresURLs(t *testing.T) {
	for _, url := range []string{
		"postgres://user:p%40ss@host:5433/app?sslmode=require",
		"postgresql://user:p%40ss@host:5433/app?sslmode=require",
		"postgresql+asyncpg://user:p%40ss@host:5433/app?ssl=require",
		"postgresql+psycopg://user:p%40ss@host:5433/app?sslmode=require",
		"postgres:///app?host=host&port=5433&user=user&password=p@ss&sslmode=require",
	} {
		o, err := parseDatabaseURL(url)
		require.NoError(t, err, url)
		c := o.pool.ConnConfig
		require.Equal(t, "host", c.Host)
		require.EqualValues(t, 5433, c.Port)
		require.Equal(t, "app", c.Database)
		require.Equal(t, "user", c.User)
		require.Equal(t, "p@ss", c.Password)
		require.NotNil(t, c.TLSConfig, url)
		require.Equal(t, map[string]string{"application_name": applicationName}, c.RuntimeParams)
		require.Equal(t, connectTimeout, c.ConnectTimeout)
		require.GreaterOrEqual(t, o.pool.MaxConns, int32(maxConns))
	}

	o, err := parseDatabaseURL("postgres://a:1,b:2/app?pool_max_conns=3&application_name=mine&connect_timeout=4&options=-c%20work_mem%3D1MB+&sslmode=disable")
	require.NoError(t, err)
	require.EqualValues(t, 3, o.pool.MaxConns)
	require.Equal(t, map[string]string{"application_name": "mine", "options": "-c work_mem=1MB+"}, o.pool.ConnConfig.RuntimeParams)
	require.Equal(t, 4*time.Second, o.pool.ConnConfig.ConnectTimeout)
	require.Len(t, o.pool.ConnConfig.Fallbacks, 1)

	o, err = parseDatabaseURL("postgresql+asyncpg://host/app?ssl=false&timeout=4&command_timeout=5&prepared_statement_cache_size=0")
	require.NoError(t, err)
	require.Nil(t, o.pool.ConnConfig.TLSConfig)
	require.Equal(t, 4*time.Second, o.pool.ConnConfig.ConnectTimeout)
	require.Equal(t, pgx.QueryExecModeExec, o.pool.ConnConfig.DefaultQueryExecMode)
	require.Equal(t, map[string]string{"application_name": applicationName}, o.pool.ConnConfig.RuntimeParams)
}

// TestBadURLs: each message names the variable and says what is wrong or what
// may be there, and none has a secret in it.
func TestBadURLs(t *testing.T) {
	const forms = "redis://[user:password@]host:port[/db]"
	for url, says := range map[string]string{
		"redis":                                                         forms,
		"redis://":                                                      forms,
		"127.0.0.1:6379":                                                forms,
		"hunter2://host":                                                forms,
		"http://user:hunter2@host":                                      forms,
		"redis://user:hunter2@host:port":                                "percent-encoded",
		"redis://user:hun ter2@host":                                    "percent-encoded",
		"redis://user:%zzhunter2@host":                                  "percent-encoded",
		"redis://user:1/hunter2@host":                                   "percent-encoded",
		"redis://user:1?hunter2@host":                                   "percent-encoded",
		"redis://user:1#hunter2@host":                                   "percent-encoded",
		"redis://:hunter2@x/hunter2@host":                               "percent-encoded",
		"://hunter2":                                                    forms,
		"redis://user:hunter2@host/hunter2":                             "invalid database number",
		"redis://host?password=hunter2":                                 "unexpected option: password",
		"redis://user:hunter2@host?no_such=option":                      "unexpected option: no_such",
		"redis://user:hunter2@host?dial_timeout=hunter2":                "invalid dial_timeout duration",
		"redis://user:hunter2@host:1?addr=":                             "addr",
		"redis://user:hunter2@host:1?addr=b":                            "addr",
		"redis://host:1?addr=user:hunter2%40b:2":                        "addr must be host:port",
		"redis://user:hunter2@host/3?addr=b:2":                          "no other database than 0",
		"unix://user:hunter2@/run/redis.sock?addr=b:2":                  "by redis:// or rediss://",
		"redis://user:hunter2@host?master_name=":                        "master_name is empty",
		"redis://user:hunter2@host?master_name=m&replica_only=1":        "replica_only can't be used",
		"redis://host?master_name=m&route_randomly=1":                   "route_randomly can't be used",
		"redis://host?master_name=m&password=hunter2&pool_size=hunter2": "invalid pool_size number",
	} {
		_, err := redisTarget(url, "")
		require.ErrorContains(t, err, "SM_REDIS_URL", url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "hunter2", url)
	}
	for url, says := range map[string]string{
		"postgres":                                                    "percent-encoded",
		"postgres:user=x password=hunter2":                            "percent-encoded",
		"host=hunter2 password=hunter2":                               "must be one of",
		"hunter2://host":                                              "must be one of",
		"mysql://user:hunter2@host/app":                               "must be one of",
		"/x.db":                                                       "must be one of",
		"postgres://user:hunter2@host:port/app":                       "port",
		"postgres://user:1/hunter2@host/app":                          "percent-encoded",
		"postgres://user:1?hunter2@host/app":                          "percent-encoded",
		"postgres://user:1#hunter2@host/app":                          "percent-encoded",
		"postgres://user:%zzhunter2@host/app":                         "percent",
		"postgres://user:hunter2@host/app?sslmode=no":                 "sslmode",
		"postgres://host/app?password=hunter2&sslmode=no":             "sslmode",
		"postgres://host/app?sslpassword=hunter2&sslmode=hunter2":     "sslmode",
		"postgresql+asyncpg://user:hunter2@host/app?ssl=no":           "sslmode",
		"postgres://user:hunter2@host/app?pool_max_conns=hunter2":     "pool_max_conns",
		"postgres://user:hunter2@host/app?connect_timeout=`: hunter2": "percent-encoded",
		"sqlite:":                    "must name a SQLite file",
		"sqlite://":                  "must name a SQLite file",
		"sqlite::memory:":            "must name a SQLite file",
		"sqlite:///:memory:":         "must name a SQLite file",
		"sqlite+aiosqlite://":        "must name a SQLite file",
		"sqlite:file:x.db":           "must name a SQLite file",
		"sqlite://host/x.db":         "no host",
		"sqlite:///x.db?mode=memory": "no parameters",
	} {
		_, err := parseDatabaseURL(url)
		require.ErrorContains(t, err, "SM_DATABASE_URL", url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "hunter2", url)
	}
}

// TestOddPasswords: whatever character a password has, written as it is or
// encoded, no part of it is shown: neither by the error of a URL that can't be
// read, nor by that of a store that can't be used.
func TestOddPasswords(t *testing.T) {
	parse := map[string]func(string) (target, error){
		"redis://user:PASSWORD@host:1/2":                               func(raw string) (target, error) { return redisTarget(raw, "") },
		"rediss://:PASSWORD@host?addr=b:1":                             func(raw string) (target, error) { return redisTarget(raw, "") },
		"redis://host?master_name=m&username=u&password=PASSWORD":      func(raw string) (target, error) { return redisTarget(raw, "") },
		"unix://user:PASSWORD@/run/redis.sock":                         func(raw string) (target, error) { return redisTarget(raw, "") },
		"postgres://user:PASSWORD@host:1/app?sslmode=disable":          databaseTarget,
		"postgres://user:PASSWORD@host:x/app":                          databaseTarget,
		"postgres://host/app?user=u&password=PASSWORD&sslmode=disable": databaseTarget,
		"postgres://host/app?user=u&password=PASSWORD&sslmode=x":       databaseTarget,
		"postgresql+asyncpg://user:PASSWORD@host/app?ssl=disable":      databaseTarget,
	}
	const head, tail = "123456", "654321"
	for c := range rune(0x180) {
		password := head + string(c) + tail
		encoded := head + strings.ReplaceAll(fmt.Sprintf("% x", " "+string(c)), " ", "%")[2:] + tail
		for _, written := range []string{password, url.QueryEscape(password), url.PathEscape(password), encoded} {
			for form, parse := range parse {
				raw := strings.Replace(form, "PASSWORD", written, 1)
				target, err := parse(raw)
				if err == nil {
					said := fmt.Errorf("%s: no %s, %q, %s", raw, password, password, written)
					err = target.unusable(t.Context(), said)
				}
				require.NotContains(t, err.Error(), head, raw)
				require.NotContains(t, err.Error(), tail, raw)
			}
		}
	}
}

func databaseTarget(raw string) (target, error) {
	d, err := parseDatabaseURL(raw)
	return d.target, err
}

func TestSecrets(t *testing.T) {
	for _, url := range []string{
		"redis://user:p%40s+s@host", "postgres://host/x?password=p%40s%2Bs", "postgres:///x?a=b&sslp%61ssword=p@s+s",
	} {
		text := secretsOf(url).hide("failed: p@s+s in " + url)
		require.NotContains(t, text, "p@s+s", url)
		require.NotContains(t, text, "p%40s", url)
		require.True(t, strings.HasPrefix(text, "failed: xxxxx in "), text)
	}
	url := `postgres://user:ab%22c@host/x?sslpassword=ab%22`
	require.Equal(t, `xxxxx, "xxxxx", xxxxx`, secretsOf(url).hide(`ab"c, "ab\"c", ab%22`))
	require.Equal(t, "as it is", secretsOf("redis://user@host").hide("as it is"))
}

func TestOlder(t *testing.T) {
	require.True(t, older("6.0.16", 6, 2))
	require.True(t, older("5.0.7", 6, 2))
	require.False(t, older("6.2.0", 6, 2))
	require.False(t, older("7.0.15", 6, 2))
	require.False(t, older("10.0", 6, 2))
	require.False(t, older("unknown", 6, 2))
}
