package sqlitelease_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

func claim(name, owner string, slots int, ttl time.Duration) leases.Claim {
	return leases.Claim{Name: name, Owner: owner, Slots: slots, TTL: ttl}
}

func hold(c leases.Claim, g leases.Grant) leases.Hold {
	return leases.Hold{Name: c.Name, Slots: c.Slots, Owner: c.Owner, Fence: g.Fence}
}

func acquire(t *testing.T, b leases.Backend, c leases.Claim) leases.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), c)
	require.NoError(t, err)
	require.True(t, g.Held)
	return g
}

// whileLocked calls do while another connection has the write lock, and
// unlocks it once do has waited for at least wait.
func whileLocked(t *testing.T, db *sql.DB, wait time.Duration, do func()) (unlocked time.Time) {
	t.Helper()
	unlock := lockWrites(t, db)
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	time.Sleep(wait) // how long the clock runs on during the wait is the point
	select {
	case <-done:
		require.Fail(t, "it did not wait for the write lock")
	default:
	}
	unlocked = time.Now()
	unlock()
	select {
	case <-done:
	case <-time.After(bound):
		require.FailNow(t, "still waiting")
	}
	return unlocked
}

func TestCase07_AnAcquireCountsItsTTLFromAfterTheWaitForTheWriteLock(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	const ttl = 10 * time.Second
	for _, slots := range []int{0, 3} {
		c := claim(fmt.Sprint("n", slots), "a", slots, ttl)
		var g leases.Grant
		var err error
		unlocked := whileLocked(t, db, time.Second, func() { g, err = b.Acquire(t.Context(), c) })
		require.NoError(t, err)
		require.True(t, g.Held)
		var expires int64
		require.NoError(t, db.QueryRow("SELECT expires_at FROM sm_lease WHERE name = ? AND slot >= 0", c.Name).Scan(&expires))
		require.GreaterOrEqual(t, expires, unlocked.Add(ttl).Truncate(time.Millisecond).UnixMicro())
		require.GreaterOrEqual(t, g.Fence, unlocked.Truncate(time.Millisecond).UnixMicro())
	}
}

func TestCase07_AnAcquireSeesWhatWasGrantedDuringTheWait(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	for _, slots := range []int{0, 1} {
		name := fmt.Sprint("n", slots)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		type answer struct {
			g   leases.Grant
			err error
		}
		answers := make(chan answer, 1)
		go func() {
			g, err := b.Acquire(t.Context(), claim(name, "late", slots, time.Minute))
			answers <- answer{g, err}
		}()
		time.Sleep(100 * time.Millisecond) // it has read "free" by now, or will read the same as below
		_, err = tx.Exec("INSERT INTO sm_lease VALUES (?, ?, 'first', 1, ?)", name, slots, time.Now().Add(time.Minute).UnixMicro())
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		got := <-answers
		require.NoError(t, got.err)
		require.False(t, got.g.Held)
		require.InDelta(t, time.Minute, got.g.RetryAfter, float64(bound))
		require.Positive(t, got.g.RetryAfter)
	}
}

func TestR2_AHoldThatExpiredDuringTheWaitForTheWriteLockStaysExpired(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	for _, slots := range []int{0, 3} {
		c := claim(fmt.Sprint("n", slots), "a", slots, 500*time.Millisecond)
		h := hold(c, acquire(t, b, c))
		var ok bool
		var err error
		whileLocked(t, db, time.Second, func() { ok, err = b.Refresh(t.Context(), h, time.Minute) })
		require.NoError(t, err)
		require.False(t, ok)

		h = hold(c, acquire(t, b, c))
		whileLocked(t, db, time.Second, func() { ok, err = b.Release(t.Context(), h) })
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func TestR5_TheFenceIsLargerThanAnyRowsAndThanTheClock(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	const ahead = int64(1) << 52 // a clock that was once ahead
	for slot := range 3 {
		slot-- // the counter, a lease, a semaphore's hold
		name := fmt.Sprint("n", slot)
		_, err := db.Exec("INSERT INTO sm_lease VALUES (?, ?, 'before', ?, 0)", name, slot, ahead)
		require.NoError(t, err)
		require.Equal(t, ahead+1, acquire(t, b, claim(name, "a", 0, time.Minute)).Fence)
		_, err = b.Release(t.Context(), leases.Hold{Name: name, Owner: "a"})
		require.NoError(t, err)
		require.Equal(t, ahead+2, acquire(t, b, claim(name, "a", 2, time.Minute)).Fence)
		require.Equal(t, ahead+3, acquire(t, b, claim(name, "b", 2, time.Minute)).Fence)
	}
	before := time.Now().Truncate(time.Millisecond).UnixMicro()
	require.GreaterOrEqual(t, acquire(t, b, claim("new", "a", 0, time.Minute)).Fence, before)
}

func TestCase06_ARefusedAttemptWritesNothing(t *testing.T) {
	db, path := open(t)
	b := sqlitelease.New(db)
	acquire(t, b, claim("lease", "a", 0, time.Minute))
	acquire(t, b, claim("semaphore", "a", 1, time.Minute))

	other, err := reopen(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer other.Close()
	version := func() (v int) {
		require.NoError(t, other.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&v))
		return v
	}
	before := version()
	for range 100 {
		for slots, name := range []string{"lease", "semaphore"} {
			g, err := b.Acquire(t.Context(), claim(name, "b", slots, time.Minute))
			require.NoError(t, err)
			require.False(t, g.Held)
		}
		_, err := b.Acquire(t.Context(), claim("lease", "b", 1, time.Minute))
		require.ErrorIs(t, err, leases.ErrKind)
	}
	require.Equal(t, before, version())
	acquire(t, b, claim("another", "b", 0, time.Minute))
	require.NotEqual(t, before, version(), "data_version does not tell")
}

func TestCase09_ADeletedRowIsRecreatedAndTheFenceGrows(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	for _, slots := range []int{0, 2} {
		c := claim(fmt.Sprint("n", slots), "a", slots, time.Minute)
		first := acquire(t, b, c)
		_, err := db.Exec("DELETE FROM sm_lease WHERE name = ?", c.Name)
		require.NoError(t, err)
		ok, err := b.Refresh(t.Context(), hold(c, first), time.Minute)
		require.NoError(t, err)
		require.False(t, ok)
		c.Owner = "b"
		require.Greater(t, acquire(t, b, c).Fence, first.Fence)
	}
}

// A semaphore reuses its rows: they are as many as were ever live at once.
func TestR13_SlotsOfEndedHoldsAreReused(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	for i := range 20 {
		for slot := range 3 {
			acquire(t, b, claim("n", fmt.Sprint(i, slot), 3, time.Minute))
		}
		g, err := b.Acquire(t.Context(), claim("n", "one more", 3, time.Minute))
		require.NoError(t, err)
		require.False(t, g.Held)
		for slot := range 3 {
			ok, err := b.Release(t.Context(), leases.Hold{Name: "n", Slots: 3, Owner: fmt.Sprint(i, slot)})
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	var rows int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM sm_lease").Scan(&rows))
	require.Equal(t, 3+1, rows)
}

func TestR11_BadArgumentsAreNotSent(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	require.NoError(t, db.Close()) // anything sent would fail otherwise
	for _, c := range []leases.Claim{
		claim("", "a", 0, time.Minute),
		claim("n", "", 0, time.Minute),
		claim("n", "a\x00", 0, time.Minute),
		claim("n", "a", -1, time.Minute),
		claim("n", "a", leases.MaxSlots+1, time.Minute),
		claim("n", "a", 0, 0),
		claim("n", "a", 0, leases.MaxTTL+1),
	} {
		_, err := b.Acquire(t.Context(), c)
		require.ErrorIs(t, err, leases.ErrInvalid, "%+v", c)
	}
	_, err := b.Refresh(t.Context(), leases.Hold{Name: "n", Owner: "a"}, 0)
	require.ErrorIs(t, err, leases.ErrInvalid)
	_, err = b.Release(t.Context(), leases.Hold{Name: "n", Owner: "a", Fence: -1})
	require.ErrorIs(t, err, leases.ErrInvalid)
	_, err = b.Acquire(t.Context(), claim("n", "a", 0, time.Minute))
	require.EqualError(t, err, "sqlite: sql: database is closed")
}

func TestR6_ErrorsSayWhatIsWrong(t *testing.T) {
	t.Run("no table", func(t *testing.T) {
		db := reopen(t, t.TempDir()+"/empty.db")
		b := sqlitelease.New(db)
		const want = "sqlite: no such table: sm_lease (run: make migrate, or migrations.Up)"
		_, err := b.Acquire(t.Context(), claim("n", "a", 0, time.Minute))
		require.EqualError(t, err, want)
		_, err = b.Refresh(t.Context(), leases.Hold{Name: "n", Owner: "a"}, time.Minute)
		require.EqualError(t, err, want)
		_, err = b.Release(t.Context(), leases.Hold{Name: "n", Owner: "a"})
		require.EqualError(t, err, want)
		err = leases.Lease("import:42", time.Minute, leases.On(b)).Acquire(t.Context())
		require.EqualError(t, err, `leases: acquire "import:42": `+want)
	})
	t.Run("read only", func(t *testing.T) {
		_, path := open(t)
		db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
		require.NoError(t, err)
		defer db.Close()
		_, err = sqlitelease.New(db).Acquire(t.Context(), claim("n", "a", 0, time.Minute))
		require.ErrorContains(t, err, "sqlite: attempt to write a readonly database")
	})
	t.Run("full", func(t *testing.T) {
		db, _ := open(t)
		db.SetMaxOpenConns(1) // max_page_count belongs to the connection
		var pages int
		require.NoError(t, db.QueryRow("PRAGMA max_page_count = 1").Scan(&pages)) // no more than there are
		b := sqlitelease.New(db)
		var err error
		for i := 0; err == nil; i++ {
			_, err = b.Acquire(t.Context(), claim(fmt.Sprint("name that takes some room ", i), "a", 0, time.Minute))
		}
		require.ErrorContains(t, err, "sqlite: database or disk is full")
		require.NotErrorIs(t, err, leases.ErrNotAcquired)
	})
	t.Run("pool in use", func(t *testing.T) {
		db, _ := open(t)
		db.SetMaxOpenConns(1)
		defer lockWrites(t, db)()
		_, err := sqlitelease.New(db, sqlitelease.Timeout(50*time.Millisecond)).Acquire(t.Context(), claim("n", "a", 0, time.Minute))
		require.ErrorContains(t, err, "every connection of the pool")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Another process keeps the write lock for longer than anyone waits.
func TestCase17_EveryCallEndsWhileAnotherProcessHasTheWriteLock(t *testing.T) {
	db, path := open(t)
	b := sqlitelease.New(db, sqlitelease.Timeout(200*time.Millisecond))
	patient := sqlitelease.New(db, sqlitelease.Timeout(time.Hour))
	held := claim("held", "a", 0, time.Hour)
	g := acquire(t, b, held)
	locker := startChild(t, "lock", path)
	require.Equal(t, "locked", locker.line(t))

	for name, call := range map[string]func(context.Context, leases.Backend) error{
		"acquire": func(ctx context.Context, b leases.Backend) error {
			_, err := b.Acquire(ctx, claim("free", "a", 0, time.Minute))
			return err
		},
		"acquire a slot": func(ctx context.Context, b leases.Backend) error {
			_, err := b.Acquire(ctx, claim("slots", "a", 2, time.Minute))
			return err
		},
		"refresh": func(ctx context.Context, b leases.Backend) error {
			_, err := b.Refresh(ctx, hold(held, g), time.Minute)
			return err
		},
		"release": func(ctx context.Context, b leases.Backend) error {
			_, err := b.Release(ctx, hold(held, g))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			err := call(context.Background(), b)
			require.ErrorContains(t, err, "sqlite: database is locked")
			require.NotErrorIs(t, err, leases.ErrNotAcquired)
			require.NotErrorIs(t, err, leases.ErrLost)

			for _, other := range []leases.Backend{patient, patient} { // the second one has nobody's turn to wait for
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				err = call(ctx, other)
				cancel()
				require.EqualError(t, err, "sqlite: context deadline exceeded")
				require.ErrorIs(t, err, context.DeadlineExceeded)

				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
				err = call(ctx, other)
				require.ErrorIs(t, err, context.Canceled)
			}
			// Well below the 5 s of busy_timeout that each could have taken.
			require.Less(t, time.Since(start), 20*time.Second)
		})
	}

	t.Run("a busy name is known without the write lock", func(t *testing.T) {
		g, err := b.Acquire(t.Context(), claim("held", "b", 0, time.Minute))
		require.NoError(t, err)
		require.False(t, g.Held)
		require.Positive(t, g.RetryAfter)
	})

	t.Run("and then it goes on", func(t *testing.T) {
		locker.stdin.Close()
		acquire(t, patient, claim("free", "a", 0, time.Minute))
	})
}

// One attempt that waits for the lock must not keep the others from ending.
func TestCase17_AnAttemptEndsWhileItWaitsForItsTurn(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db, sqlitelease.Timeout(time.Hour))
	defer lockWrites(t, db)()
	first, cancelFirst := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Acquire(first, claim("first", "a", 0, time.Minute))
		ended <- err
	}()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := b.Acquire(ctx, claim("second", "a", 0, time.Minute))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	cancelFirst()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(bound):
		require.FailNow(t, "still waiting")
	}
}

// A db as another driver may open it: no busy_timeout, rollback journal,
// deferred transactions.
func TestNewWorksWithoutBusyTimeoutAndWAL(t *testing.T) {
	path := t.TempDir() + "/plain.db"
	var dbs []*sql.DB
	for range 3 {
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		dbs = append(dbs, db)
	}
	require.NoError(t, migrations.Up(t.Context(), dbs[0], "sqlite"))
	errs := make(chan error, len(dbs))
	for i, db := range dbs {
		go func() {
			b := sqlitelease.New(db, sqlitelease.Timeout(bound))
			for range 50 {
				h := leases.Lease("one", bound, leases.On(b), leases.Owner(fmt.Sprint(i)))
				if err := h.Do(context.Background(), func(context.Context) error { return nil }); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range dbs {
		require.NoError(t, <-errs)
	}
}

// TestR13_RowsThatAreMissing, deleted by hand, leave room like ones that are
// free; and more rows than the caller's slots are no obstacle.
func TestR13_RowsThatAreMissing(t *testing.T) {
	db, _ := open(t)
	b := sqlitelease.New(db)
	acquired := func(slots int, owner string) bool {
		t.Helper()
		g, err := b.Acquire(t.Context(), claim("x", owner, slots, time.Hour))
		require.NoError(t, err)
		return g.Held
	}
	change := func(query string) {
		t.Helper()
		_, err := db.Exec(query)
		require.NoError(t, err)
	}
	for i := range 5 {
		require.True(t, acquired(5, fmt.Sprint(i)))
	}
	require.False(t, acquired(5, "5"))
	change("DELETE FROM sm_lease WHERE name = 'x' AND slot IN (2, 3)")
	require.False(t, acquired(3, "5"))
	require.True(t, acquired(5, "5"))
	require.True(t, acquired(5, "6"))
	require.False(t, acquired(5, "7"))
	change("UPDATE sm_lease SET expires_at = 1 WHERE name = 'x' AND holder IN ('0', '4', '5')")
	require.False(t, acquired(2, "8"))
	require.True(t, acquired(3, "8"))
	require.True(t, acquired(3, "8"), "R4")
	require.False(t, acquired(3, "9"))
	require.True(t, acquired(2, "8"), "R4")
	require.True(t, acquired(5, "9"))
	require.True(t, acquired(5, "10"))
	require.False(t, acquired(5, "11"))
}

func TestErrorsSayThatTheTableIsOld(t *testing.T) {
	db, _ := open(t)
	_, err := db.Exec("DROP INDEX sm_lease_slot_ends")
	require.NoError(t, err)
	_, err = sqlitelease.New(db).Acquire(t.Context(), claim("x", "a", 2, time.Hour))
	require.ErrorContains(t, err, "older version (run: make migrate")
}
