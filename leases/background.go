package leases

import (
	"context"
	"time"
)

// backgroundTime bounds a release that nobody waits for.
const backgroundTime = 5 * time.Second

// background bounds how many of them are at the store at once.
var background = make(chan struct{}, 64)

// releaseInBackground gives a hold back that nobody will use. That the store
// does not have it is no reason to stop: the attempt that was given up may
// still be on its way, and be applied after this.
func releaseInBackground(ctx context.Context, b Backend, h Hold) {
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTime)
		defer cancel()
		for pause := 10 * time.Millisecond; ; pause *= 2 {
			select {
			case background <- struct{}{}:
				ok, err := b.Release(ctx, h)
				<-background
				if err == nil && ok {
					wakeLines(b, h.Name)
					return
				}
			default: // its turn comes after a pause
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
}
