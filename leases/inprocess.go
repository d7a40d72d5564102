package leases

import (
	"context"
	"sync"
	"time"
)

// NewInProcess returns a backend for the goroutines of one process: what a
// program has when nothing is configured, and what tests use. Other processes
// are not excluded. Its clock is the process's monotonic clock.
func NewInProcess() Backend {
	return &inProcess{start: time.Now(), names: make(map[string]*record), sweepAt: minSweep}
}

const minSweep = 1024 // names kept before idle ones are dropped

type inProcess struct {
	start time.Time // expiries are durations since then

	mu      sync.Mutex
	names   map[string]*record
	floor   int64 // no record that was dropped had a larger fence
	sweepAt int
}

type record struct {
	semaphore bool
	fence     int64 // of the latest grant
	holders   map[string]holder
}

type holder struct {
	fence   int64
	expires time.Duration
}

func (p *inProcess) Acquire(ctx context.Context, c Claim) (Grant, error) {
	c, err := c.Check()
	if err != nil {
		return Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return Grant{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.start)
	r := p.names[c.Name]
	if r == nil {
		p.sweep(now)
		r = &record{fence: p.floor, holders: make(map[string]holder, 1)}
		p.names[c.Name] = r
	}
	if r.semaphore != (c.Slots > 0) {
		if live, _ := r.live(now); live > 0 {
			return Grant{}, c.KindError()
		}
		r.semaphore = c.Slots > 0
	}
	if h, ok := r.holders[c.Owner]; !ok || h.expires <= now {
		if slots := max(c.Slots, 1); len(r.holders) >= slots {
			if live, first := r.live(now); live >= slots {
				return Grant{RetryAfter: first - now}, nil
			}
		}
	}
	r.fence = max(r.fence+1, p.start.UnixMicro()+now.Microseconds())
	r.holders[c.Owner] = holder{r.fence, now + c.TTL}
	return Grant{Held: true, Fence: r.fence}, nil
}

func (p *inProcess) Refresh(ctx context.Context, h Hold, ttl time.Duration) (bool, error) {
	ttl, err := CheckTTL(ttl)
	if err != nil {
		return false, err
	}
	return p.change(ctx, h, func(r *record, cur holder, now time.Duration) {
		r.holders[h.Owner] = holder{cur.fence, now + ttl}
	})
}

func (p *inProcess) Release(ctx context.Context, h Hold) (bool, error) {
	return p.change(ctx, h, func(r *record, _ holder, _ time.Duration) {
		delete(r.holders, h.Owner)
	})
}

// change applies do to the live hold that h names, if there is one.
func (p *inProcess) change(ctx context.Context, h Hold, do func(*record, holder, time.Duration)) (bool, error) {
	if err := h.Check(); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Since(p.start)
	r := p.names[h.Name]
	if r == nil || r.semaphore != (h.Slots > 0) {
		return false, nil
	}
	cur, ok := r.holders[h.Owner]
	if !ok || cur.expires <= now || (h.Fence != 0 && h.Fence != cur.fence) {
		return false, nil
	}
	do(r, cur, now)
	return true, nil
}

// live drops the holders that have expired, and returns how many are left and
// when the first of them expires.
func (r *record) live(now time.Duration) (n int, first time.Duration) {
	for owner, h := range r.holders {
		if h.expires <= now {
			delete(r.holders, owner)
			continue
		}
		if n == 0 || h.expires < first {
			first = h.expires
		}
		n++
	}
	return n, first
}

// sweep drops idle names once enough have gathered, so that a process that
// uses ever new names does not grow.
func (p *inProcess) sweep(now time.Duration) {
	if len(p.names) < p.sweepAt {
		return
	}
	for name, r := range p.names {
		if live, _ := r.live(now); live == 0 {
			p.floor = max(p.floor, r.fence)
			delete(p.names, name)
		}
	}
	p.sweepAt = max(minSweep, 2*len(p.names))
}
