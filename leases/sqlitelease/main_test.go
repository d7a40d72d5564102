package sqlitelease_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

const bound = time.Minute // on a hang, not a measure

// The test binary is also the other processes of these tests: it runs the
// function that childVariable names, on the file in its first argument.
const childVariable = "SQLITELEASE_TEST_CHILD"

var children = map[string]func(path string){"lock": childLock}

func TestMain(m *testing.M) {
	if run := children[os.Getenv(childVariable)]; run != nil {
		run(os.Args[1])
		return
	}
	os.Exit(m.Run())
}

type child struct {
	*exec.Cmd
	stdin io.Closer
	lines chan string // closed when the child has ended
}

func startChild(t *testing.T, name, path string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0], path), lines: make(chan string, 4096)}
	c.Env = append(os.Environ(), childVariable+"="+name)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	c.stdin = in
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		c.Process.Kill()
		c.stdin.Close()
		for range c.lines { //nolint:revive // drained, so that Wait may close the pipe
		}
		c.Wait()
	})
	return c
}

// line returns the child's next line.
func (c *child) line(t *testing.T) string {
	t.Helper()
	select {
	case l, ok := <-c.lines:
		require.True(t, ok, "the child ended")
		return l
	case <-time.After(bound):
		require.FailNow(t, "the child says nothing")
		return ""
	}
}

// say is how a child answers; a child's failure ends it.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func must(err error) {
	if err != nil {
		say("ERROR %v", err)
		os.Exit(1)
	}
}

// untilToldToStop waits for the parent to close stdin, or to end.
func untilToldToStop() { io.Copy(io.Discard, os.Stdin) }

func childDB(path string) *sql.DB {
	db, err := sqlitelease.Open(path)
	must(err)
	return db
}

// childLock keeps the file's write lock.
func childLock(path string) {
	tx, err := childDB(path).BeginTx(context.Background(), nil)
	must(err)
	say("locked")
	untilToldToStop()
	must(tx.Rollback())
}

// open returns a db with the table sm_lease, and its path.
func open(t testing.TB) (*sql.DB, string) {
	t.Helper()
	path := teststore.SQLitePath(t)
	db := reopen(t, path)
	require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
	return db, path
}

func reopen(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sqlitelease.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// lockWrites keeps the file's write lock until the returned function is called.
func lockWrites(t testing.TB, db *sql.DB) (unlock func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}
