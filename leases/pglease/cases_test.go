package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/pglease"
)

func isLost(err error) bool { return errors.Is(err, leases.ErrLost) }

// TestR12_AFreshNameBecomesOneKind, whoever comes first.
func TestR12_AFreshNameBecomesOneKind(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	for _, before := range []string{"fresh", "a lease before", "a semaphore before"} {
		t.Run(before, func(t *testing.T) {
			for i := range 100 {
				name := fmt.Sprint(before, i)
				switch before {
				case "a lease before":
					require.True(t, released(t, b, held(t, b, claim(name, 0, "before", long))))
				case "a semaphore before":
					require.True(t, released(t, b, held(t, b, claim(name, 2, "before", long))))
				}
				var all sync.WaitGroup
				var got [4]leases.Grant
				begin := make(chan struct{})
				for n := range got {
					all.Go(func() {
						<-begin
						g, err := b.Acquire(ctxOf(t), claim(name, n%2*2, fmt.Sprint(n), long))
						if err != nil && !errors.Is(err, leases.ErrKind) {
							t.Error(err)
						}
						got[n] = g
					})
				}
				close(begin)
				all.Wait()
				leaseHolds, slotHolds := 0, 0
				for n, g := range got {
					switch {
					case g.Held && n%2 == 0:
						leaseHolds++
					case g.Held:
						slotHolds++
					}
				}
				require.True(t, leaseHolds == 1 && slotHolds == 0 || leaseHolds == 0 && slotHolds > 0,
					"%d lease holds, %d of the semaphore", leaseHolds, slotHolds)
			}
		})
	}
}

// TestR13_NoneIsRefusedWhileSlotsAreFree, however many come at once.
func TestR13_NoneIsRefusedWhileSlotsAreFree(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	const slots = 40
	for round := range 3 { // new rows, released rows, lapsed rows
		var all sync.WaitGroup
		for i := range slots {
			all.Go(func() {
				g, err := b.Acquire(ctxOf(t), claim("x", slots, fmt.Sprint(i), long))
				if err != nil || !g.Held {
					t.Errorf("round %d, owner %d: %+v, %v", round, i, g, err)
				}
			})
		}
		all.Wait()
		require.NotZero(t, busy(t, b, claim("x", slots, "one too many", long)).RetryAfter)
		if round == 0 {
			for i := range slots {
				require.True(t, released(t, b, leases.Hold{Name: "x", Slots: slots, Owner: fmt.Sprint(i)}))
			}
		} else {
			exec(t, pool, "UPDATE sm_lease SET expires_at = clock_timestamp() - interval '1 second' WHERE name = 'x' AND slot > 0")
		}
	}
	var rows int
	require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT count(*) FROM sm_lease WHERE name = 'x' AND slot > 0").Scan(&rows))
	require.Equal(t, slots, rows, "rows are used again")
}

// TestR13_AFreeSlotIsFoundBelowLiveOnes, and among fewer slots than before.
func TestR13_AFreeSlotIsFoundBelowLiveOnes(t *testing.T) {
	t.Parallel()
	b := pglease.New(newPool(t))
	var holds []leases.Hold
	for i := range 5 {
		holds = append(holds, held(t, b, claim("x", 5, fmt.Sprint(i), long)))
	}
	require.True(t, released(t, b, holds[1]))
	busy(t, b, claim("x", 4, "b", long))
	held(t, b, claim("x", 5, "b", long))
	for _, h := range []leases.Hold{holds[0], holds[2], holds[3]} {
		require.True(t, released(t, b, h))
	}
	busy(t, b, claim("x", 2, "c", long))
	held(t, b, claim("x", 3, "c", long))
}

// TestR4_AReacquireKeepsItsSlot, also when the semaphore is full or over-full.
func TestR4_AReacquireKeepsItsSlot(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	first := held(t, b, claim("x", 2, "a", long))
	held(t, b, claim("x", 2, "b", long))
	again := held(t, b, claim("x", 1, "a", long))
	require.Greater(t, again.Fence, first.Fence)
	var rows int
	require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT count(*) FROM sm_lease WHERE name = 'x' AND holder = 'a'").Scan(&rows))
	require.Equal(t, 1, rows)
	require.False(t, refreshed(t, b, first, long))
	require.True(t, refreshed(t, b, again, long))
}

// TestR5_TheFenceGrows over switches of kind, lost rows, a clock that was set
// back and other backends' fences.
func TestR5_TheFenceGrows(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	var last int64
	grows := func(slots int) leases.Hold {
		t.Helper()
		h := held(t, b, claim("x", slots, "a", long))
		require.Greater(t, h.Fence, last)
		last = h.Fence
		return h
	}
	for range 3 {
		grows(0)
		require.True(t, released(t, b, grows(0)))
		grows(2)
		require.True(t, released(t, b, grows(1)))
	}
	for _, loss := range []string{"DELETE FROM sm_lease", "DELETE FROM sm_lease WHERE slot = 0", "DELETE FROM sm_lease WHERE slot > 0", "TRUNCATE sm_lease"} {
		exec(t, pool, loss)
		h := grows(1)
		exec(t, pool, loss)
		if loss == "DELETE FROM sm_lease WHERE slot = 0" {
			busy(t, b, claim("x", 1, "b", long))
			require.True(t, refreshed(t, b, h, long))
			require.True(t, released(t, b, h))
		}
		exec(t, pool, "DELETE FROM sm_lease")
		exec(t, pool, loss)
		require.True(t, released(t, b, grows(0)))
	}
	for _, slots := range []int{0, 1} {
		ahead := time.Now().AddDate(100, 0, 0).UnixMicro()
		exec(t, pool, "UPDATE sm_lease SET fence = $1", ahead)
		last = ahead
		grows(slots)
		grows(slots)
		require.True(t, released(t, b, grows(slots)))
		require.Less(t, last, ahead+10, "one more than the last, when the clock is behind")
	}
}

// TestCase09_ADeletedRowIsMadeAgain: nobody is locked out, and the fence grows.
func TestCase09_ADeletedRowIsMadeAgain(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onBoth(t, 2, func(t *testing.T, slots int) {
		h := held(t, b, claim(t.Name(), slots, "a", long))
		exec(t, pool, "DELETE FROM sm_lease WHERE name = $1", t.Name())
		require.False(t, refreshed(t, b, h, long))
		require.False(t, released(t, b, h))
		require.Greater(t, held(t, b, claim(t.Name(), slots, "b", long)).Fence, h.Fence)
	})
}

// rows is everything about the rows of a name that a statement could change,
// the locks on them included.
func rows(t *testing.T, pool *pgxpool.Pool, name string) (all string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(ctxOf(t),
		"SELECT string_agg(concat_ws(' ', ctid, xmin, xmax, l.*), E'\n' ORDER BY slot) FROM sm_lease l WHERE name = $1", name).Scan(&all))
	return all
}

// TestCase06_ARefusedAttemptOnlyReads: no row changes or is locked, and no
// transaction ID is used up, which is what a commit record in the WAL needs.
func TestCase06_ARefusedAttemptOnlyReads(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(pool)
	onBoth(t, 2, func(t *testing.T, slots int) {
		name := t.Name()
		for i := range max(slots, 1) {
			held(t, b, claim(name, slots, fmt.Sprint(i), long))
		}
		before := rows(t, pool, name)
		for range 10 {
			require.NotZero(t, busy(t, b, claim(name, slots, "b", long)).RetryAfter)
			_, err := b.Acquire(ctxOf(t), claim(name, 1-min(slots, 1), "b", long))
			require.ErrorIs(t, err, leases.ErrKind)
		}
		require.Equal(t, before, rows(t, pool, name))
	})
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c)
		}
	}()
	return l.Addr().String()
}

// cutProxy passes bytes on until it is cut: then it only swallows them.
type cutProxy struct {
	address string
	cut     chan struct{}
}

func newCutProxy(t *testing.T, server string) *cutProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p := &cutProxy{l.Addr().String(), make(chan struct{})}
	pass := func(to, from net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				to.Close()
				return
			}
			select {
			case <-p.cut:
			default:
				to.Write(buf[:n])
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go pass(up, client)
			go pass(client, up)
		}
	}()
	return p
}

// TestCase17_EveryOperationIsBounded though its ctx has no deadline: the server
// never answers, or stops answering, or the pool has no connection to give.
func TestCase17_EveryOperationIsBounded(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	bounded := func(t *testing.T, pool *pgxpool.Pool, after string) {
		t.Helper()
		b := pglease.New(pool, pglease.Timeout(200*time.Millisecond))
		h := leases.Hold{Name: "x", Owner: "a", Fence: 1}
		for _, call := range []func() (bool, error){
			func() (bool, error) {
				_, err := b.Acquire(context.Background(), claim("x", 0, "a", long))
				return false, err
			},
			func() (bool, error) {
				_, err := b.Acquire(context.Background(), claim("y", 2, "a", long))
				return false, err
			},
			func() (bool, error) { return b.Refresh(context.Background(), h, long) },
			func() (bool, error) { return b.Release(context.Background(), h) },
		} {
			answer := start(func(context.Context) (bool, error) { return call() })
			select {
			case a := <-answer:
				require.ErrorContains(t, a.err, after)
				require.NotContains(t, a.err.Error(), secret)
			case <-time.After(bound):
				t.Fatal("it hangs")
			}
		}
	}
	const noAnswer = "postgres: no answer within 200ms"
	t.Run("from the first", func(t *testing.T) {
		bounded(t, open(t, "postgres://sm:"+secret+"@"+blackHole(t)+"/sm?sslmode=disable"), noAnswer)
	})
	t.Run("from some time on", func(t *testing.T) {
		var server string
		proxied := newURL(t)
		config, err := pgxpool.ParseConfig(proxied)
		require.NoError(t, err)
		server = net.JoinHostPort(config.ConnConfig.Host, fmt.Sprint(config.ConnConfig.Port))
		p := newCutProxy(t, server)
		pool := open(t, proxied, func(c *pgxpool.Config) {
			host, port, _ := net.SplitHostPort(p.address)
			c.ConnConfig.Host = host
			fmt.Sscan(port, &c.ConnConfig.Port)
		})
		held(t, pglease.New(pool), claim("x", 0, "a", long))
		close(p.cut)
		bounded(t, pool, noAnswer)
	})
	t.Run("no connection to be had", func(t *testing.T) {
		pool := newPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
		conn, err := pool.Acquire(ctxOf(t))
		require.NoError(t, err)
		defer conn.Release()
		bounded(t, pool, noAnswer)
	})
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		bounded(t, open(t, "postgres://sm:"+secret+"@"+l.Addr().String()+"/sm?sslmode=disable"), "postgres: ")
	})
	t.Run("ctx ends first", func(t *testing.T) {
		b := pglease.New(open(t, "postgres://"+blackHole(t)+"/sm?sslmode=disable"))
		ctx, cancel := context.WithCancel(t.Context())
		answer := start(func(context.Context) (bool, error) {
			_, err := b.Acquire(ctx, claim("x", 0, "a", long))
			return false, err
		})
		cancel()
		require.ErrorIs(t, (<-answer).err, context.Canceled)
	})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	pool := open(t, teststore.PostgresURL(t))
	b := pglease.New(pool)
	_, err := b.Acquire(ctxOf(t), claim("x", 0, "a", long))
	require.EqualError(t, err, `postgres: relation "sm_lease" does not exist (run: make migrate, or migrations.Up)`)
	err = leases.Semaphore("x", 2, long, leases.On(b)).Acquire(ctxOf(t))
	require.EqualError(t, err, `leases: acquire "x": postgres: relation "sm_lease" does not exist (run: make migrate, or migrations.Up)`)

	old := newPool(t)
	exec(t, old, "ALTER TABLE sm_lease DROP COLUMN slot_ends")
	_, err = pglease.New(old).Acquire(ctxOf(t), claim("x", 0, "a", long))
	require.EqualError(t, err, "postgres: the table sm_lease is of an older version (run: make migrate, or migrations.Up)")

	for _, schema := range []string{"", "a\x00b", "\xff", string(make([]byte, 64))} {
		b := pglease.New(pool, pglease.Schema(schema))
		_, err := b.Acquire(ctxOf(t), claim("x", 0, "a", long))
		require.ErrorIs(t, err, leases.ErrInvalid)
		require.ErrorContains(t, err, "schema must be 1 to 63 bytes")
		_, err = b.Release(ctxOf(t), leases.Hold{Name: "x", Owner: "a"})
		require.ErrorIs(t, err, leases.ErrInvalid)
	}
}

// TestAReleaseDoesNotWaitForTheDisk, and everything else does.
func TestAReleaseDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	b := pglease.New(pool)
	exec(t, pool, "CREATE TABLE commits (setting text)")
	exec(t, pool, `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO commits VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	exec(t, pool, `CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON sm_lease
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()`) // at the commit
	commits := func() (settings []string) {
		rows, err := pool.Query(ctxOf(t), "SELECT DISTINCT setting FROM commits")
		require.NoError(t, err)
		for rows.Next() {
			var s string
			require.NoError(t, rows.Scan(&s))
			settings = append(settings, s)
		}
		require.NoError(t, rows.Err())
		exec(t, pool, "TRUNCATE commits")
		return settings
	}
	onBoth(t, 2, func(t *testing.T, slots int) {
		h := held(t, b, claim(t.Name(), slots, "a", long))
		require.Equal(t, []string{"on"}, commits())
		require.True(t, refreshed(t, b, h, long))
		require.Equal(t, []string{"on"}, commits())
		require.True(t, released(t, b, h))
		require.Equal(t, []string{"off"}, commits())
	})
}

// TestNoStateStaysInASession: as PgBouncer needs it in transaction mode, where
// the next transaction may be on another server connection.
func TestNoStateStaysInASession(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	b := pglease.New(pool)
	settings := func() (all string) {
		require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT string_agg(name || setting, ',' ORDER BY name) FROM pg_settings").Scan(&all))
		return all
	}
	before := settings()
	onBoth(t, 2, func(t *testing.T, slots int) {
		h := held(t, b, claim(t.Name(), slots, "a", long))
		require.True(t, refreshed(t, b, h, long))
		require.True(t, released(t, b, h))
		require.Equal(t, before, settings())
		var locks int
		require.NoError(t, pool.QueryRow(ctxOf(t), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks))
		require.Zero(t, locks)
	})
}

// TestAStatementTimeoutIsAnError and never busy.
func TestAStatementTimeoutIsAnError(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	b := pglease.New(open(t, pool.Config().ConnString(), param("statement_timeout", "100")))
	held(t, b, claim("x", 2, "a", long))
	lockRows(t, pool, "x")
	_, err := b.Acquire(ctxOf(t), claim("x", 2, "b", long))
	require.ErrorContains(t, err, "postgres: ")
	require.ErrorContains(t, err, "57014")
}
