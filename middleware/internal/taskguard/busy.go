package taskguard

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/simple-module/core/leases"
)

// whenBusy is what a busy name becomes in a queue.
func (c *config) whenBusy(ctx context.Context, busy *leases.NotAcquiredError) error {
	switch c.busy {
	case Skip:
		c.logger().InfoContext(ctx, "task skipped: its lease is busy", "name", busy.Name, "retry_after", busy.RetryAfter)
		return nil
	case Fail:
		return busy
	}
	return &RescheduleError{Delay: delay(busy.RetryAfter), Busy: busy}
}

const (
	usualDelay = time.Second
	leastDelay = 50 * time.Millisecond
)

// delay is the holder's remaining time, or a jittered second if that is
// shorter: most holders release long before their TTL.
func delay(remaining time.Duration) time.Duration {
	d := usualDelay/2 + rand.N(usualDelay)
	if remaining > 0 {
		d = min(d, remaining)
	}
	return max(d, leastDelay)
}

// room counts the tasks of each name that wait in place, so that one busy name
// does not fill every worker of a process.
type room struct {
	most int

	mu      sync.Mutex
	waiting map[string]int
}

func (r *room) enter(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[name] >= r.most {
		return false
	}
	if r.waiting == nil {
		r.waiting = make(map[string]int)
	}
	r.waiting[name]++
	return true
}

func (r *room) leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[name]--; r.waiting[name] == 0 {
		delete(r.waiting, name)
	}
}
