package sqlitelease

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

const defaultTimeout = 5 * time.Second

// The pauses between two tries while the file is locked, for a connection
// without a busy_timeout, or with a short one.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

func (b *Backend) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.timeout, &timeoutError{b.timeout})
}

// do runs one statement on a connection, once it is its turn. A statement that
// found the file locked has changed nothing and is tried again until ctx ends.
func (b *Backend) do(ctx context.Context, turn chan struct{}, statement func(*sql.Conn) error) error {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return explain(ctx, ctx.Err())
	}
	defer func() { <-turn }()

	conn, err := b.db.Conn(ctx)
	if err != nil {
		return explain(ctx, err)
	}
	defer conn.Close()
	return explain(ctx, retryLocked(ctx, func() error { return statement(conn) }))
}

func retryLocked(ctx context.Context, try func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := try()
		if err == nil || !isLocked(err) {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return err
		}
	}
}
