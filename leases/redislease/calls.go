package redislease

import (
	"context"
	"errors"
	"fmt"
	"math"
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

	// largest is how many calls go together.
	largest = 64

	// patience is how long a call waits for a lane, which may hang: then it
	// goes alone.
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
}

// run runs a script, by its digest if the server knows it. The client does not
// stop a read when ctx ends, so that the call is left behind then.
func (b *Backend) run(caller context.Context, s *redis.Script, keys []string, args []any) (int64, error) {
	if b.err != nil {
		return 0, b.err
	}
	ctx, cancel := context.WithTimeout(caller, b.timeout)
	defer cancel()
	c := &call{ctx: ctx, script: s, keys: keys, args: args, done: make(chan struct{})}
	var tired <-chan time.Time
	if !b.queue.add(c) {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		tired = timer.C
	}
	for {
		var err error
		select {
		case <-c.done:
			if c.err == nil {
				return c.n, nil
			}
			err = c.err
		case <-tired:
			if b.queue.remove(c) {
				go b.queue.sendAlone(c)
			}
			continue
		case <-ctx.Done():
			err = ctx.Err()
		}
		switch {
		case caller.Err() != nil:
			err = caller.Err()
		case ctx.Err() != nil:
			err = fmt.Errorf("no answer for %v", b.timeout)
		}
		return 0, fmt.Errorf("redis: %w", err)
	}
}

// queue has the calls that wait for a lane.
type queue struct {
	client  redis.UniversalClient
	timeout time.Duration // of calls that go together
	lanes   int
	idle    chan []*call // to a lane's goroutine that waits for more

	mu      sync.Mutex
	waiting []*call
	taken   int // lanes
}

func (q *queue) init(c redis.UniversalClient, timeout time.Duration) {
	q.client, q.timeout, q.lanes, q.idle = c, timeout, math.MaxInt, make(chan []*call)
	// The calls to one node of a cluster don't wait for those to another.
	if _, one := c.(*redis.Client); one {
		q.lanes = lanes
	}
}

// add reports false when the call has to wait for a lane.
func (q *queue) add(c *call) bool {
	q.mu.Lock()
	if q.taken == q.lanes {
		q.waiting = append(q.waiting, c)
		q.mu.Unlock()
		return false
	}
	q.taken++
	q.mu.Unlock()
	batch := []*call{c}
	select {
	case q.idle <- batch:
	default:
		go q.lane(batch)
	}
	return true
}

// remove reports false when the call does not wait any more.
func (q *queue) remove(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// next returns the calls that a lane sends next. With none it is free.
func (q *queue) next() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), largest)
	if n == 0 {
		q.taken--
		return nil
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// lane sends batch, and then what has come meanwhile.
func (q *queue) lane(batch []*call) {
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		q.send(batch)
		if batch = q.next(); batch != nil {
			continue
		}
		idle.Reset(idleTime)
		select {
		case batch = <-q.idle:
		case <-idle.C:
			return
		}
	}
}

// send runs calls in one round trip.
func (q *queue) send(batch []*call) {
	if len(batch) == 1 {
		q.sendAlone(batch[0])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
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
		if refused := redis.Error(nil); errors.As(c.err, &refused) {
			// Alone the client loads the script, or tries again, as the error says.
			go q.sendAlone(c)
			continue
		}
		close(c.done)
	}
}

func (q *queue) sendAlone(c *call) {
	c.n, c.err = c.script.Run(c.ctx, q.client, c.keys, c.args...).Int64()
	close(c.done)
}
