package pglease

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// freed is the names whose waiters have to be notified.
type freed struct {
	mu      sync.Mutex
	names   map[string]struct{}
	sending bool
}

// notify tells the waiters of a name in other processes, off the caller's path.
// Names that are released meanwhile go out together.
func (b *Backend) notify(name string) {
	b.freed.mu.Lock()
	defer b.freed.mu.Unlock()
	if b.freed.names == nil {
		b.freed.names = make(map[string]struct{})
	}
	b.freed.names[name] = struct{}{}
	if !b.freed.sending {
		b.freed.sending = true
		go b.sendNotifications()
	}
}

func (b *Backend) sendNotifications() {
	for {
		b.freed.mu.Lock()
		names := slices.Collect(maps.Keys(b.freed.names))
		clear(b.freed.names)
		b.freed.sending = len(names) > 0
		b.freed.mu.Unlock()
		if len(names) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
		// A hint: the waiters' back-off makes up for one that fails.
		_, _ = b.pool.Exec(ctx, notifySQL, names)
		cancel()
	}
}
