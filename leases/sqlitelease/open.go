package sqlitelease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Open opens the SQLite file at path with modernc.org/sqlite, and creates it
// if it is not there; its folder must be. It does not create sm_lease:
// migrations.Up does.
//
// path is a plain file path, in which no character has a meaning of its own.
// A relative path counts from the working directory at the time of Open, and
// stays with that folder. Processes that are to exclude each other must open
// the same file, on a local disk: use an absolute path. An empty path and
// ":memory:" are errors: such a database belongs to one connection and
// excludes nobody.
//
// The connections use WAL, wait up to 5 s for a lock (busy_timeout), and begin
// transactions with BEGIN IMMEDIATE unless they are read-only. Other settings
// are SQLite's defaults. The *sql.DB may have several connections and may
// serve the application's own tables; close it when done.
func Open(path string) (*sql.DB, error) {
	switch {
	case path == "":
		return nil, errors.New("sqlite: open: the path is empty: name a file that every process opens")
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return nil, fmt.Errorf("sqlite: open %q: must be a plain file path: a database in memory excludes nobody, and a URI is not read here", path)
	case strings.IndexByte(path, 0) >= 0:
		return nil, fmt.Errorf("sqlite: open %q: the path has a NUL byte", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	switch folder, err := os.Stat(filepath.Dir(abs)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("sqlite: open %q: the folder %q does not exist: create it first", path, filepath.Dir(abs))
	case err != nil:
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	case !folder.IsDir():
		return nil, fmt.Errorf("sqlite: open %q: %q is not a folder", path, filepath.Dir(abs))
	}
	db, err := sql.Open("sqlite", dsn(abs))
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	if err := requireWAL(db); err != nil {
		db.Close()
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	return db, nil
}

// dsn has the path as a URI, so that ?, # and % in it are part of its name.
func dsn(abs string) string {
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") { // C:/…
		slashed = "/" + slashed
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: url.Values{
		"_busy_timeout": {fmt.Sprint(defaultTimeout.Milliseconds())},
		"_journal_mode": {"WAL"},
		"_txlock":       {"immediate"},
		"_error_rc":     {"true"}, // no stale text in errors
	}.Encode()}
	return u.String()
}

// requireWAL also opens the first connection, so that a file that can't be
// used is Open's error. The switch to WAL is refused while another process
// makes the same switch.
func requireWAL(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*defaultTimeout)
	defer cancel()
	var mode string
	err := retryLocked(ctx, func() error {
		return db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("its journal mode is %q and can't be changed to WAL: is it on a network file system?", mode)
	}
	return err
}
