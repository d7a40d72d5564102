package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
)

// target is the store that settings name, before it is opened.
type target struct {
	kind     string // as Runtime.Kind
	where    string // for errors: what and where, without secrets
	variable string
	secrets  secrets
	open     func(ctx context.Context) (*Runtime, error)
}

func (s Settings) target() (target, error) {
	switch {
	case s.RedisURL != "":
		return redisTarget(s.RedisURL, s.RedisPrefix)
	case s.DatabaseURL != "":
		o, err := parseDatabaseURL(s.DatabaseURL)
		return o.target, err
	}
	return target{kind: "in-process", open: func(context.Context) (*Runtime, error) {
		return &Runtime{backend: leases.NewInProcess()}, nil
	}}, nil
}

// failure is an error that says all there is to say, also what to do: what the
// library says that it wraps may have a password in it.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

func failuref(err error, format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), err}
}

// unusable says what could not be used, and why, without a secret.
func (t target) unusable(ctx context.Context, err error) error {
	var (
		said    *failure
		pg      *pgconn.PgError
		replied redis.Error
		text    string
	)
	ended := ctx.Err()
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) && ended == nil {
		ended = context.DeadlineExceeded // a connection's deadline came first, by a moment
	}
	switch {
	case errors.As(err, &said):
		text = said.text
	case errors.As(err, &pg):
		text = fmt.Sprintf("%s (SQLSTATE %s; is %s right?)", pg.Message, pg.Code, t.variable)
	case errors.Is(ended, context.Canceled):
		text = "cancelled before it answered"
	case ended != nil:
		text = fmt.Sprintf("no answer in time (is it running, and is %s right?)", t.variable)
	case t.kind == "sqlite" || errors.As(err, &replied):
		text = fmt.Sprintf("%s (is %s right?)", err, t.variable)
	default:
		text = fmt.Sprintf("%s (is it running, and is %s right?)", err, t.variable)
	}
	if ended != nil && !errors.Is(err, ended) {
		err = errors.Join(err, ended)
	}
	// pgx has a line for each address.
	text = strings.ReplaceAll(strings.ReplaceAll(text, ":\n\t", ": "), "\n\t", "; ")
	return failuref(err, "bootstrap: %s can't be used: %s", t.where, t.secrets.hide(text))
}
