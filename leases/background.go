package leases

import (
	"context"
	"time"
)

// backgroundTime bounds a release that nobody waits for.
const backgroundTime = 5 * time.Second

// background bounds how many of them run at once, so that a store that is
// down does not gather goroutines; what is not released expires.
var background = make(chan struct{}, 64)

// releaseInBackground gives a hold back that nobody will use. That the store
// does not have it is no reason to stop: the attempt that was given up may
// still be on its way, and be applied after this.
func releaseInBackground(ctx context.Context, b Backend, h Hold) {
	select {
	case background <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-background }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTime)
		defer cancel()
		for pause := 10 * time.Millisecond; ; pause *= 2 {
			if ok, err := b.Release(ctx, h); err == nil && ok {
				wakeLines(b, h.Name)
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
}
