package sqlitelease_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases/sqlitelease"
	"github.com/simple-module/core/migrations"
)

func TestOpenTakesThePathAsItIs(t *testing.T) {
	for _, name := range []string{
		"plain.db", "with space.db", "a?b=c&_txlock=x.db", "a#b.db", "100%.db", "%41.db", "a+b.db", "ü.db", ":memory:", "a;b'\"c.db",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			db := reopen(t, path)
			require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
			require.FileExists(t, path)
			acquire(t, sqlitelease.New(db), claim("n", "a", 0, time.Minute))

			g, err := sqlitelease.New(reopen(t, path)).Acquire(t.Context(), claim("n", "b", 0, time.Minute))
			require.NoError(t, err)
			require.False(t, g.Held, "another file")
		})
	}
}

func TestOpenAnchorsARelativePathAtTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	db := reopen(t, "leases.db")
	require.NoError(t, migrations.Up(t.Context(), db, "sqlite"))
	t.Chdir(t.TempDir())
	db.SetMaxIdleConns(0) // a new connection for each statement
	require.NoError(t, db.Ping())
	acquire(t, sqlitelease.New(db), claim("n", "a", 0, time.Minute))
	require.FileExists(t, filepath.Join(dir, "leases.db"))
	require.NoFileExists(t, "leases.db")
}

func TestOpenRefusesWhatExcludesNobody(t *testing.T) {
	for path, want := range map[string]string{
		"":                   "the path is empty",
		":memory:":           "a database in memory excludes nobody",
		"file:x?mode=memory": "a database in memory excludes nobody",
		"a\x00b":             "NUL",
	} {
		_, err := sqlitelease.Open(path)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "sqlite: open")
	}
}

func TestOpenSaysWhyAFileCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	_, err := sqlitelease.Open(filepath.Join(dir, "missing", "x.db"))
	require.ErrorContains(t, err, fmt.Sprintf("the folder %q does not exist", filepath.Join(dir, "missing")))

	_, err = sqlitelease.Open(dir)
	require.ErrorContains(t, err, "unable to open database file")

	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("this is no database, but long enough to look at"), 0o600))
	_, err = sqlitelease.Open(text)
	require.ErrorContains(t, err, "file is not a database")

	_, err = sqlitelease.Open(filepath.Join(text, "x.db"))
	require.ErrorContains(t, err, "is not a folder")
}

func TestOpenedConnectionsAllHaveTheSettings(t *testing.T) {
	db, _ := open(t)
	for range 3 {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer c.Close() // after all three
		var mode string
		var timeout, synchronous int
		require.NoError(t, c.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
		require.NoError(t, c.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&timeout))
		require.NoError(t, c.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&synchronous))
		require.Equal(t, "wal", mode)
		require.Equal(t, 5000, timeout)
		require.Equal(t, 2, synchronous, "FULL: a commit survives a power failure")
	}
}

func TestOpenOfANewFileByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.db")
	const n = 16
	errs := make(chan error, n)
	for range n {
		go func() {
			db, err := sqlitelease.Open(path)
			if err == nil {
				_, err = db.Exec("CREATE TABLE IF NOT EXISTS x (y)")
				db.Close()
			}
			errs <- err
		}()
	}
	for range n {
		require.NoError(t, <-errs)
	}
}

// exampleDir is for the examples, which have no *testing.T.
func exampleDir() (dir string, cleanup func()) {
	dir, err := os.MkdirTemp("", "sqlitelease")
	if err != nil {
		panic(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

func exampleTables(db *sql.DB) {
	if err := migrations.Up(context.Background(), db, "sqlite"); err != nil {
		panic(err)
	}
	if _, err := db.Exec("CREATE TABLE report (id INTEGER PRIMARY KEY, text TEXT)"); err != nil {
		panic(err)
	}
}
