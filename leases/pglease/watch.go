package pglease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simple-module/core/internal/subscription"
)

const (
	aliveEvery = 15 * time.Second // a silent connection is asked whether it is
	echoTime   = 2 * time.Second  // for the first notification to come back
	deafTime   = time.Minute      // before the next try after one did not

	// The pauses between two tries to connect.
	firstPause = 10 * time.Millisecond
	lastPause  = 5 * time.Second
)

var errDeaf = errors.New("notifications don't get through")

// Watch implements leases.Waker: releases are heard of by LISTEN, on one
// connection beside the pool for all names. Behind PgBouncer in transaction
// mode notifications don't get through: that is logged, and tried again after
// a minute.
func (b *Backend) Watch(ctx context.Context, name string, wake func()) (stop func(), err error) {
	switch {
	case b.invalid != nil:
		return nil, b.invalid
	case time.Now().UnixNano() < b.deaf.Load():
		return nil, fmt.Errorf("postgres: listen: %w", errDeaf)
	}
	stop, err = b.watched.Watch(ctx, name, wake)
	if err != nil {
		return nil, fmt.Errorf("postgres: listen: %w", err)
	}
	return stop, nil
}

// listen connects, and again when the connection breaks, until nobody waits.
func (b *Backend) listen(changed <-chan struct{}) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		connected, err := b.listenOnce(changed)
		if err == nil {
			return
		}
		if errors.Is(err, errDeaf) {
			b.deaf.Store(time.Now().Add(deafTime).UnixNano())
			slog.Warn("lease waiters hear of no releases: Postgres' notifications don't get through, as behind PgBouncer in transaction mode; they ask now and then instead")
			b.watched.Stop(true)
			return
		}
		if connected {
			pause = firstPause
		}
		time.Sleep(pause)
		if b.watched.Stop(false) {
			return
		}
	}
}

// listenOnce returns nil when nobody has waited for a while, or what broke the
// connection, and whether there was one.
func (b *Backend) listenOnce(changed <-chan struct{}) (connected bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	cfg := b.pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return false, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
		defer cancel()
		conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN sm_lease"); err != nil {
		return false, err
	}
	if err := b.echo(conn); err != nil {
		return false, err
	}
	subscribed, marked, idle := make(subscription.Subscribed), make(map[string]bool), time.Now()
	for first := true; ; first = false {
		var n *pgconn.Notification
		change := first // the topics may be older than the connection
		if !first {
			if n, change, err = waitForNotification(conn, changed); err != nil {
				return true, err
			}
		}
		switch {
		case n != nil:
			b.watched.Wake(n.Payload, false)
		case !change: // long silence
			if time.Since(idle) > subscription.IdleTime && b.watched.Stop(false) {
				return true, nil
			}
			if err := b.exec(conn, "SELECT 1"); err != nil {
				return true, err
			}
		}
		if change {
			on, off := b.watched.Difference(subscribed)
			if err := b.mark(conn, marked, on, off); err != nil {
				return true, err
			}
			for _, name := range on {
				b.watched.Wake(name, true)
			}
			idle = time.Now()
		}
	}
}

// mark brings the session's marks up to date; they would count.
func (b *Backend) mark(conn *pgx.Conn, marked map[string]bool, on, off []string) error {
	var fresh []string
	for _, name := range on {
		if !marked[name] {
			marked[name] = true
			fresh = append(fresh, name)
		}
	}
	for _, name := range off {
		delete(marked, name)
	}
	if len(off) > 0 {
		if err := b.exec(conn, unwatchSQL, off); err != nil {
			return err
		}
	}
	if len(fresh) > 0 {
		return b.exec(conn, watchSQL, fresh)
	}
	return nil
}

// echo returns errDeaf unless a notification sent through the pool arrives.
func (b *Backend) echo(conn *pgx.Conn) error {
	token := rand.Text()
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if _, err := b.pool.Exec(ctx, notifySQL, []string{token}); err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, echoTime)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case ctx.Err() != nil:
			return errDeaf
		case err != nil:
			return err
		case n.Payload == token:
			return nil
		}
	}
}

func (b *Backend) exec(conn *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	_, err := conn.Exec(ctx, sql, args...)
	return err
}

// waitForNotification returns a notification, or that changed has received, or
// neither after a long silence.
func waitForNotification(conn *pgx.Conn, changed <-chan struct{}) (n *pgconn.Notification, change bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), aliveEvery)
	defer cancel()
	received := make(chan bool, 1)
	done := make(chan struct{})
	go func() {
		select {
		case <-changed:
			received <- true
			cancel()
		case <-done:
			received <- false
		}
	}()
	n, err = conn.WaitForNotification(ctx)
	close(done)
	change = <-received
	if err != nil && ctx.Err() != nil && !conn.IsClosed() {
		err = nil // the wait was ended; the connection is as before
	}
	return n, change, err
}
