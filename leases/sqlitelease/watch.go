package sqlitelease

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"sync"
	"time"
)

// While anybody waits, one goroutine of the Backend looks every few
// milliseconds whether a watched name has fewer holds than before: SQLite
// tells a process nothing of the others. (PRAGMA data_version would tell of
// commits, but needs a connection of its own, and a pool may have only one.)
// One statement serves all names, and takes at most 2 % of the time.
const (
	lookEvery = 40 * time.Millisecond
	lookShare = 50
)

type watchers struct {
	mu      sync.Mutex
	m       map[*watcher]struct{}
	looking bool
}

type watcher struct {
	name string
	wake func()
	live int // at the last look; read and written by the looking goroutine only
}

// Watch implements leases.Waker: releases in other processes are heard of
// within some 40 ms, longer when very many names are watched. It sends nothing
// itself and does not fail.
func (b *Backend) Watch(_ context.Context, name string, wake func()) (stop func(), err error) {
	// More than there can be: the first look wakes, whatever came before it.
	w := &watcher{name, wake, math.MaxInt}
	b.watchers.mu.Lock()
	defer b.watchers.mu.Unlock()
	if b.watchers.m == nil {
		b.watchers.m = make(map[*watcher]struct{})
	}
	b.watchers.m[w] = struct{}{}
	if !b.watchers.looking {
		b.watchers.looking = true
		go b.look()
	}
	return func() {
		b.watchers.mu.Lock()
		defer b.watchers.mu.Unlock()
		delete(b.watchers.m, w)
	}, nil
}

// look runs until nobody watches.
func (b *Backend) look() {
	for pause := lookEvery; ; {
		time.Sleep(pause)
		watching := b.watchers.list()
		if watching == nil {
			return
		}
		start := time.Now()
		live, err := b.liveHolds(watching)
		pause = max(lookEvery, lookShare*time.Since(start))
		if err != nil {
			continue // the waiters' own attempts report it
		}
		for _, w := range watching {
			before := w.live
			if w.live = live[w.name]; w.live < before {
				w.wake() // not under mu: it may call stop
			}
		}
	}
}

// list returns nil when there are none, and then the looking has ended.
func (s *watchers) list() []*watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m) == 0 {
		s.looking = false
		return nil
	}
	all := make([]*watcher, 0, len(s.m))
	for w := range s.m {
		all = append(all, w)
	}
	return all
}

func (b *Backend) liveHolds(watching []*watcher) (map[string]int, error) {
	names := make([]string, len(watching))
	for i, w := range watching {
		names[i] = w.name
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.bound(context.Background())
	defer cancel()
	live := make(map[string]int, len(names))
	err = b.do(ctx, b.reading, func(conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, liveSQL, string(list))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var n int
			if err := rows.Scan(&name, &n); err != nil {
				return err
			}
			live[name] = n
		}
		return rows.Err()
	})
	return live, err
}
