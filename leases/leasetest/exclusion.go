package leasetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func exclusion(t *testing.T, s store) {
	for _, k := range []struct {
		name  string
		slots int
		most  int
	}{{"lease", 0, 1}, {"semaphore", 3, 3}} {
		t.Run(k.name, func(t *testing.T) {
			t.Run("filled", func(t *testing.T) {
				t.Parallel()
				name := newName()
				claim := func(i int) leases.Claim {
					return leases.Claim{Name: name, Slots: k.slots, Owner: owner(i), TTL: long}
				}
				var first granted
				for i := range k.most {
					h := s.hold(t, "R1", claim(i))
					if i == 0 {
						first = h
					}
				}
				for i := range 3 {
					s.busy(t, "R1", claim(k.most+i))
				}
				s.released(t, "R1", first.Hold)
				s.hold(t, "R1", claim(k.most))
				s.busy(t, "R1", claim(k.most+1))
			})
			t.Run("burst", func(t *testing.T) {
				t.Parallel()
				for range 4 {
					burst(t, s, k.slots, k.most)
				}
			})
			t.Run("stress", func(t *testing.T) {
				t.Parallel()
				most, at := overlap(stress(t, s, k.slots))
				require.LessOrEqual(t, most, k.most, "R1: %d holds were live at once (%v)", most, at)
			})
			t.Run("handles", func(t *testing.T) {
				t.Parallel()
				exclusiveDo(t, s, k.slots, k.most)
			})
		})
	}
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		for i := range 8 {
			s.hold(t, "R1", leases.Claim{Name: newName(), Slots: i % 2, Owner: "one owner", TTL: long})
		}
	})
}

// burst lets many owners attempt at the same moment: a name that the store has
// never seen, and then the same name after all have released.
func burst(t *testing.T, s store, slots, most int) {
	t.Helper()
	const owners = 24
	name, ctx := newName(), bounded(t)
	for round := range 2 {
		var mu sync.Mutex
		var got []leases.Hold
		concurrently(t, owners, func(i int) error {
			c := leases.Claim{Name: name, Slots: slots, Owner: owner(i), TTL: long}
			g, err := s.Acquire(ctx, c)
			if g.Held {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, leases.Hold{Name: name, Slots: slots, Owner: c.Owner, Fence: g.Fence})
			}
			return err
		})
		require.Len(t, got, most, "R1: grants to %d owners at once, round %d", owners, round)
		for _, h := range got {
			s.released(t, "R1", h)
		}
	}
}

// window is when a hold was live for certain, and when it was asked for.
type window struct {
	from, to       time.Time
	sent, answered time.Time
	fence          int64
}

// stress lets workers acquire, refresh, and then release or forget a short
// hold for a while, and returns the holds.
func stress(t *testing.T, s store, slots int) []window {
	t.Helper()
	const (
		workers = 8
		ttl     = 40 * time.Millisecond
		enough  = 20
	)
	name, ctx := newName(), bounded(t)
	stop := time.Now().Add(500 * time.Millisecond)
	var mu sync.Mutex
	var all []window
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().After(stop) && len(all) >= enough
	}
	concurrently(t, workers, func(w int) error {
		for i := 0; !done(); i++ {
			h := leases.Hold{Name: name, Slots: slots, Owner: fmt.Sprintf("%d-%d", w, i)}
			got := window{sent: time.Now()}
			g, err := s.Acquire(ctx, leases.Claim{Name: name, Slots: slots, Owner: h.Owner, TTL: ttl})
			if err != nil {
				return err
			}
			if !g.Held {
				time.Sleep(rand.N(time.Millisecond))
				continue
			}
			got.answered, got.fence, h.Fence = time.Now(), g.Fence, g.Fence
			got.from, got.to = got.answered, got.sent.Add(ttl)
			if err := use(ctx, s, h, ttl, &got.to); err != nil {
				return err
			}
			mu.Lock()
			all = append(all, got)
			mu.Unlock()
		}
		return nil
	})
	return all
}

// use keeps a hold for a moment; until is how long it is live for certain.
func use(ctx context.Context, s store, h leases.Hold, ttl time.Duration, until *time.Time) error {
	time.Sleep(rand.N(2 * time.Millisecond))
	if rand.N(2) == 0 {
		sent := time.Now()
		ok, err := s.Refresh(ctx, h, ttl)
		switch {
		case err != nil:
			return err
		case ok:
			*until = sent.Add(ttl)
		case time.Now().Before(*until):
			return fmt.Errorf("R1: a live hold of %q could not be refreshed: somebody else took it", h.Name)
		}
	}
	if rand.N(8) == 0 {
		return nil // forgotten: it expires
	}
	sent, liveUntil := time.Now(), *until
	if sent.Before(*until) {
		*until = sent
	}
	ok, err := s.Release(ctx, h)
	if err == nil && !ok && time.Now().Before(liveUntil) {
		return fmt.Errorf("R1: a live hold of %q could not be released: somebody else took it", h.Name)
	}
	return err
}

// overlap returns the largest number of windows open at one moment, and that
// moment.
func overlap(all []window) (most int, at time.Time) {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, w := range all {
		if w.from.Before(w.to) {
			edges = append(edges, edge{w.from, 1}, edge{w.to, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.step - b.step // what ends at that moment has ended
	})
	open := 0
	for _, e := range edges {
		open += e.step
		if open > most {
			most, at = open, e.at
		}
	}
	return most, at
}

// exclusiveDo counts who is inside Do at once.
func exclusiveDo(t *testing.T, s store, slots, most int) {
	t.Helper()
	name, ctx := newName(), bounded(t)
	var inside, runs atomic.Int64
	concurrently(t, 8, func(int) error {
		h := s.handle(name, slots, long)
		for range 4 {
			err := h.Do(ctx, func(ctx context.Context) error {
				defer inside.Add(-1)
				if n := inside.Add(1); n > int64(most) && ctx.Err() == nil {
					return fmt.Errorf("R1: %d are inside Do of %q at once", n, name)
				}
				runs.Add(1)
				time.Sleep(rand.N(time.Millisecond))
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.EqualValues(t, 8*4, runs.Load(), "R1: each of the handles gets its turns")
}

func slots(t *testing.T, s store) {
	claim := func(name string, slots, i int) leases.Claim {
		return leases.Claim{Name: name, Slots: slots, Owner: owner(i), TTL: long}
	}
	t.Run("each_caller_counts_with_its_own", func(t *testing.T) {
		t.Parallel()
		name := newName()
		holds := make([]granted, 4)
		for i := range 3 {
			holds[i] = s.hold(t, "R13", claim(name, 3, i))
		}
		s.busy(t, "R13", claim(name, 3, 3))
		s.busy(t, "R13", claim(name, 1, 3))
		holds[3] = s.hold(t, "R13", claim(name, 4, 3)) // raised
		s.busy(t, "R13", claim(name, 4, 4))

		s.busy(t, "R13", claim(name, 2, 4)) // lowered: nobody loses a hold
		for _, h := range holds {
			s.refreshed(t, "R13", h.Hold, long)
		}
		for i, h := range holds[:3] {
			s.busy(t, "R13", claim(name, 4-i-1, 5))
			s.released(t, "R13", h.Hold)
		}
		s.busy(t, "R13", claim(name, 1, 4)) // one is live
		s.hold(t, "R13", claim(name, 2, 4))
		s.busy(t, "R13", claim(name, 2, 5))
	})
	t.Run("a_holder_re-acquires_after_lowering", func(t *testing.T) {
		t.Parallel()
		name := newName()
		for i := range 3 {
			s.hold(t, "R13", claim(name, 3, i))
		}
		again := s.hold(t, "R13", claim(name, 1, 1))
		s.busy(t, "R13", claim(name, 3, 3))
		s.released(t, "R13", again.Hold)
		s.hold(t, "R13", claim(name, 3, 3))
		s.busy(t, "R13", claim(name, 3, 4))
	})
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		const many = 60
		name := newName()
		for i := range many {
			s.hold(t, "R13", claim(name, many, i))
		}
		s.busy(t, "R13", claim(name, many, many))
		s.hold(t, "R13", claim(name, leases.MaxSlots, many))
	})
	t.Run("handles", func(t *testing.T) {
		t.Parallel()
		name, ctx := newName(), bounded(t)
		for range 2 {
			require.NoError(t, s.handle(name, 2, long).Acquire(ctx))
		}
		ok, err := s.handle(name, 2, long).TryAcquire(ctx)
		require.NoError(t, err)
		require.False(t, ok, "R13: both slots are held")
		require.NoError(t, s.handle(name, 3, long, leases.NonBlocking()).Acquire(ctx), "R13: a caller with 3 slots finds one")
	})
}
