package redislease

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
)

var _ leases.Sequencer = (*Backend)(nil)

// AcquireInTurn implements leases.Sequencer.
func (b *Backend) AcquireInTurn(ctx context.Context, c leases.Claim, ticket string, again bool) (leases.Grant, error) {
	return b.acquire(ctx, c, b.marked(ticket), again)
}

// WatchTurn implements leases.Sequencer: by SUBSCRIBE, on one connection for
// all names.
func (b *Backend) WatchTurn(ctx context.Context, name, ticket string, wake func()) (stop func(), err error) {
	if b.err != nil {
		return nil, b.err
	}
	stop, err = b.watched.Watch(ctx, turnChannel(b.key(name), b.marked(ticket)), wake)
	if err != nil {
		return nil, fmt.Errorf("redis: subscribe: %w", err)
	}
	return stop, nil
}

// LeaveLine implements leases.Sequencer.
func (b *Backend) LeaveLine(ctx context.Context, name, ticket string) error {
	_, err := b.run(ctx, leaveLine, []string{lineKey(b.key(name))}, []any{b.marked(ticket)})
	return err
}

// marked returns the ticket as it stands in the line: with a mark if the node
// that calls it may be another than the one at which this process listens.
func (b *Backend) marked(ticket string) string {
	if _, one := b.client.(*redis.Client); one {
		return ticket
	}
	return "?" + ticket
}
