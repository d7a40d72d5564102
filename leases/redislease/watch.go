package redislease

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/internal/subscription"
)

// listen has the connection. The client makes it anew when it breaks, and then
// subscribes again, of which the waiters hear like the first time.
func (b *Backend) listen(changed <-chan struct{}) {
	ctx := context.Background()
	pubsub := b.client.Subscribe(ctx)
	defer pubsub.Close()
	subscribed := make(subscription.Subscribed)
	var messages <-chan any // once there is a connection to read from
	idle := time.NewTimer(subscription.IdleTime)
	defer idle.Stop()
	for {
		select {
		case <-changed:
			on, off := b.watched.Difference(subscribed)
			// An error is of the connection, which the client makes anew.
			if len(on) > 0 {
				_ = pubsub.Subscribe(ctx, on...)
			}
			if len(off) > 0 {
				_ = pubsub.Unsubscribe(ctx, off...)
			}
			if messages == nil {
				messages = pubsub.ChannelWithSubscriptions()
			}
			idle.Reset(subscription.IdleTime)
		case m, open := <-messages:
			switch m := m.(type) {
			case *redis.Message:
				b.watched.Wake(m.Channel, false)
			case *redis.Subscription:
				b.watched.Wake(m.Channel, m.Kind == "subscribe")
			}
			if !open { // the client was closed
				b.watched.Stop(true)
				return
			}
		case <-idle.C:
			if b.watched.Stop(false) {
				return
			}
			idle.Reset(subscription.IdleTime)
		}
	}
}
