package redislease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// lanes is how many round trips to a server are under way at once. Calls
	// that find all of them taken go together in the next: that is soon, and
	// spares both sides most of the work for each.
	lanes = 4

	// largest is how many calls go together at most.
	largest = 64

	// patience is how long a call waits for the lanes, which may hang: then it
	// goes with those that wait, besides them.
	patience = 20 * time.Millisecond

	// idleTime is how long a lane's goroutine waits for more before it ends. A
	// new one would have to grow its stack in each call.
	idleTime = 100 * time.Millisecond
)

// call is one script to run.
type call struct {
	ctx    context.Context
	script *redis.Script
	keys   []string
	args   []any

	done chan struct{} // closed once there is an answer
	n    int64
	err  error

	sent *roundTrip // guarded by queue
}

// roundTrip is one that calls share.
type roundTrip struct {
	cancel context.CancelFunc
	stay   int // callers that wait for it; guarded by queue
}

// run runs a script, by its digest if the server knows it. The client does not
// stop a read when ctx ends, so that the call is left behind then.
func (b *Backend) run(ctx context.Context, s *redis.Script, keys []string, args []any) (int64, error) {
	if b.err != nil {
		return 0, b.err
	}
	c := &call{ctx: ctx, script: s, keys: keys, args: args, done: make(chan struct{})}
	wait := b.timeout
	if sent := b.queue.add(c); !sent {
		wait = min(wait, patience)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-c.done:
			if c.err == nil {
				return c.n, nil
			}
			err = c.err
		case <-timer.C:
			if wait < b.timeout {
				if b.queue.waits(c) {
					go b.queue.send(b.queue.take())
				}
				timer.Reset(b.timeout - wait)
				wait = b.timeout
				continue
			}
			err = fmt.Errorf("no answer for %v: %w", b.timeout, context.DeadlineExceeded)
			b.queue.leave(c)
		case <-ctx.Done():
			b.queue.leave(c)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return 0, fmt.Errorf("redis: %w", err)
	}
}

// queue has the calls that wait for a lane.
type queue struct {
	client  redis.UniversalClient
	timeout time.Duration // of a round trip
	lanes   int
	largest int
	idle    chan struct{} // wakes a lane's goroutine

	mu      sync.Mutex
	waiting []*call
	taken   int // lanes
}

func (q *queue) init(c redis.UniversalClient, timeout time.Duration) {
	q.client, q.timeout, q.idle = c, timeout, make(chan struct{})
	q.lanes, q.largest = lanes, largest
	if _, one := c.(*redis.Client); !one {
		// The calls to one node of a cluster don't wait for those to another.
		q.lanes, q.largest = math.MaxInt, 1
	}
}

// add reports false when the call has to wait for a lane.
func (q *queue) add(c *call) bool {
	q.mu.Lock()
	q.waiting = append(q.waiting, c)
	free := q.taken < q.lanes
	if free {
		q.taken++
	}
	q.mu.Unlock()
	if free {
		select {
		case q.idle <- struct{}{}:
		default:
			go q.lane()
		}
	}
	return free
}

// take returns the calls that go together next.
func (q *queue) take() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.largest)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

func (q *queue) waits(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.waiting, c)
}

// leave is for a caller that waits no longer. A round trip that nobody waits
// for need not be made.
func (q *queue) leave(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if c.sent != nil {
		if c.sent.stay--; c.sent.stay == 0 {
			c.sent.cancel()
		}
	}
}

// free reports that a lane has nothing to send.
func (q *queue) free() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		return false
	}
	q.taken--
	return true
}

// lane sends what waits until nothing does.
func (q *queue) lane() {
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		runtime.Gosched() // goroutines that are about to call go along
		q.send(q.take())
		if !q.free() {
			continue
		}
		idle.Reset(idleTime)
		select {
		case <-q.idle:
		case <-idle.C:
			return
		}
	}
}

// send runs calls in one round trip.
func (q *queue) send(batch []*call) {
	switch len(batch) {
	case 0:
		return
	case 1:
		q.sendAlone(batch[0])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	trip := &roundTrip{cancel, len(batch)}
	q.mu.Lock()
	for _, c := range batch {
		c.sent = trip
	}
	q.mu.Unlock()
	p := q.client.Pipeline()
	answers := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		if c.ctx.Err() == nil { // else nobody waits for it
			answers[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
		}
	}
	_, _ = p.Exec(ctx) // each has its own error
	for i, c := range batch {
		if answers[i] == nil {
			c.err = c.ctx.Err()
			close(c.done)
			continue
		}
		c.n, c.err = answers[i].Int64()
		refused := redis.Error(nil)
		switch {
		case redis.HasErrorPrefix(c.err, "NOSCRIPT"):
			q.sendAlone(c) // the first loads it
		case errors.As(c.err, &refused):
			go q.sendAlone(c) // the client tries again if the error is worth it
		default:
			close(c.done)
		}
	}
}

func (q *queue) sendAlone(c *call) {
	ctx, cancel := context.WithTimeout(c.ctx, q.timeout)
	defer cancel()
	c.n, c.err = c.script.Run(ctx, q.client, c.keys, c.args...).Int64()
	close(c.done)
}
