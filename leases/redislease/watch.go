package redislease

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/internal/subscription"
)

const (
	// pingTime is how long the subscription may be silent before it is tried.
	pingTime = 3 * time.Second

	// pauses between attempts to subscribe again.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// listen keeps up the subscription while somebody watches. A new connection
// subscribes to everything anew, of which the waiters hear like the first time.
func (b *Backend) listen(changed <-chan struct{}) {
	pause := firstPause
	for {
		heard, err := b.listenOnce(changed)
		if b.watched.Stop(errors.Is(err, redis.ErrClosed)) {
			return
		}
		if heard {
			pause = firstPause
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
}

// listenOnce has one connection. It returns when that breaks, or when nobody
// has watched for a while, and reports whether the server has answered.
func (b *Backend) listenOnce(changed <-chan struct{}) (heard bool, err error) {
	ctx := context.Background()
	pubsub := b.client.Subscribe(ctx)
	defer pubsub.Close()
	subscribed := make(subscription.Subscribed)
	type end struct {
		heard bool
		err   error
	}
	broken := make(chan end, 1)
	reads := false
	idle := time.NewTimer(0)
	defer idle.Stop()
	for {
		on, off := b.watched.Difference(subscribed)
		if len(on) > 0 {
			if err := pubsub.Subscribe(ctx, on...); err != nil {
				return false, err
			}
		}
		if len(off) > 0 {
			if err := pubsub.Unsubscribe(ctx, off...); err != nil {
				return false, err
			}
		}
		if !reads && len(on) > 0 {
			reads = true
			go func() {
				heard, err := b.receive(ctx, pubsub)
				broken <- end{heard, err}
			}()
		}
		idle.Reset(subscription.IdleTime)
		select {
		case <-changed:
		case end := <-broken:
			return end.heard, end.err
		case <-idle.C:
			if len(subscribed) == 0 {
				return true, nil
			}
		}
	}
}

// receive reads until the connection breaks, or answers nothing any more.
func (b *Backend) receive(ctx context.Context, pubsub *redis.PubSub) (heard bool, err error) {
	pinged := false
	for {
		m, err := pubsub.ReceiveTimeout(ctx, pingTime)
		var silent net.Error
		if errors.As(err, &silent) && silent.Timeout() && !pinged {
			pinged = true
			if err = pubsub.Ping(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return heard, err
		}
		heard, pinged = true, false
		switch m := m.(type) {
		case *redis.Message:
			b.watched.Wake(m.Channel, false)
		case *redis.Subscription:
			b.watched.Wake(m.Channel, m.Kind == "subscribe")
		}
	}
}
