// Package bootstrap gives every process of an application the same backend from
// the same settings. Web and worker both call
//
//	settings, err := bootstrap.FromEnv()
//	if err != nil { … }
//	rt, err := bootstrap.Start(ctx, settings)
//	if err != nil { … }
//	defer rt.Close(context.Background())
//
// and from then on leases.Lease and leases.Semaphore of the one exclude those
// of the other. Runtime also has the client, pool or file it opened, for the
// queue and for the application's own use.
//
// A store that is set but can't be used is an error of Start that says what to
// do. There is no fallback to another one. No error and no log line has a
// password in it.
package bootstrap

import (
	"log/slog"
	"os"
	"strings"
	"time"
)

// Settings say where leases and semaphores are kept: in Redis if RedisURL is
// set, else in the database if DatabaseURL is, else in this process only.
type Settings struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, or
	// unix://[user:password@]/path/to.sock. Further servers of a Cluster are
	// given as ?addr=host:port&addr=…; one server of a Cluster is enough.
	// Sentinels are given alike, with ?master_name=NAME. The other parameters
	// are those of go-redis: dial_timeout, pool_size and so on.
	RedisURL string

	// DatabaseURL is postgres://user:password@host:port/database with the
	// parameters of libpq and pgxpool (sslmode, search_path, pool_max_conns,
	// default_query_exec_mode), or a SQLite file: sqlite:relative.db,
	// sqlite:/absolute.db, or as SQLAlchemy has it, sqlite:///relative.db and
	// sqlite:////absolute.db. A relative path counts from the working
	// directory. Python's spellings of the schemes, postgresql+asyncpg and
	// sqlite+aiosqlite, are understood.
	DatabaseURL string

	// RedisPrefix begins every Redis key; "" is "sm:". It must be without
	// braces.
	RedisPrefix string

	// Timeout bounds Start, and each Health; 0 is 10 s.
	Timeout time.Duration

	// Logger is where Start says which backend it is; nil is slog.Default().
	Logger *slog.Logger
}

// FromEnv reads SM_REDIS_URL, SM_DATABASE_URL and SM_REDIS_PREFIX. A variable
// that is empty counts as not set. It returns an error, which names the
// variable, for a URL that Start could not use.
func FromEnv() (Settings, error) {
	s := Settings{
		RedisURL:    os.Getenv("SM_REDIS_URL"),
		DatabaseURL: os.Getenv("SM_DATABASE_URL"),
		RedisPrefix: os.Getenv("SM_REDIS_PREFIX"),
	}.trimmed()
	if s.RedisURL != "" {
		if _, err := parseRedisURL(s.RedisURL); err != nil {
			return Settings{}, err
		}
	}
	if s.DatabaseURL != "" {
		if _, err := parseDatabaseURL(s.DatabaseURL); err != nil {
			return Settings{}, err
		}
	}
	return s, nil
}

func (s Settings) trimmed() Settings {
	s.RedisURL, s.DatabaseURL = strings.TrimSpace(s.RedisURL), strings.TrimSpace(s.DatabaseURL)
	return s
}

const defaultTimeout = 10 * time.Second

func (s Settings) timeout() time.Duration {
	if s.Timeout <= 0 {
		return defaultTimeout
	}
	return s.Timeout
}

func (s Settings) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.Default()
	}
	return s.Logger
}
