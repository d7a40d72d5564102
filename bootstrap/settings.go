// Package bootstrap gives every process of an application the same backend from
// the same settings. Web and worker begin alike:
//
//	func main() {
//		ctx := context.Background()
//		settings, err := bootstrap.FromEnv() // SM_REDIS_URL, else SM_DATABASE_URL
//		if err != nil {
//			log.Fatal(err)
//		}
//		rt, err := bootstrap.Start(ctx, settings)
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer rt.Close(ctx)
//		…
//	}
//
// From then on leases.Lease and leases.Semaphore of the one exclude those of
// the other. [Runtime] also has the client, pool or file that was opened, for
// the queue and for the application's own use.
//
// A store that is set but can't be used is an error of Start that says what to
// do. There is no fallback to another one. No error and no log line has a
// password in it.
package bootstrap

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Settings say where leases and semaphores are kept: in Redis if RedisURL is
// set, else in the database if DatabaseURL is, else in this process only. Space
// around a text is ignored, and an empty one is as none.
type Settings struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, or
	// unix://[user:password@]/path/to.sock.
	//
	// One server of a Cluster is enough: the others are found. More can be
	// given as ?addr=host:port&addr=…, with user and password for all of them.
	//
	// With ?master_name=NAME it is the URL of a Sentinel, further ones as addr.
	// User and password are then those of the Sentinels; Redis' own are the
	// parameters username and password.
	//
	// The other parameters are those of go-redis: dial_timeout, pool_size and
	// so on. Special characters must be percent-encoded.
	RedisURL string

	// DatabaseURL is postgres://user:password@host:port/database with the
	// parameters of libpq and pgxpool: sslmode, search_path, pool_max_conns (at
	// least 16 if not given), connect_timeout (10 s), application_name
	// (sm-leases) and so on. Behind PgBouncer in transaction mode, add
	// default_query_exec_mode=exec. Special characters must be percent-encoded.
	//
	// Or it is a SQLite file: sqlite:relative.db, sqlite:/absolute.db, or as
	// SQLAlchemy has it, sqlite:///relative.db and sqlite:////absolute.db. A
	// relative path counts from the working directory of the process.
	//
	// Python's schemes, postgresql+asyncpg and sqlite+aiosqlite, are understood,
	// with asyncpg's ssl, timeout and statement_cache_size=0.
	DatabaseURL string

	// RedisPrefix begins every Redis key; "" is "sm:". It must be without
	// braces.
	RedisPrefix string

	// Timeout bounds Start, and each Health; 0 or less is 10 s.
	Timeout time.Duration

	// Logger is where Start says which backend it is; nil is slog.Default().
	Logger *slog.Logger
}

// FromEnv reads SM_REDIS_URL, SM_DATABASE_URL and SM_REDIS_PREFIX. The error
// names the variable that Start could not use. Where Redis is set the database
// is the application's own affair, and not looked at.
func FromEnv() (Settings, error) {
	s := Settings{
		RedisURL:    os.Getenv("SM_REDIS_URL"),
		DatabaseURL: os.Getenv("SM_DATABASE_URL"),
		RedisPrefix: os.Getenv("SM_REDIS_PREFIX"),
	}.trimmed()
	if _, err := s.target(); err != nil {
		// With what was read: a caller that goes on in spite of the error gets
		// it from Start too, and not a backend of this process only.
		return s, fmt.Errorf("bootstrap: %w", err)
	}
	return s, nil
}

func (s Settings) trimmed() Settings {
	for _, text := range []*string{&s.RedisURL, &s.DatabaseURL, &s.RedisPrefix} {
		*text = strings.TrimSpace(*text)
	}
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
