package bootstrap

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/simple-module/core/leases/sqlitelease"
)

// parseSQLite reads what follows "sqlite:". In SQLAlchemy's form the path
// begins behind a third slash. Nothing in a path is decoded there, nor here.
func parseSQLite(rest string) (database, error) {
	path, sqlalchemy := strings.CutPrefix(rest, "///")
	switch {
	case !sqlalchemy && strings.HasPrefix(rest, "//") && rest != "//":
		return database{}, errors.New("SM_DATABASE_URL: sqlite:// has no host: write sqlite:///relative.db or sqlite:////absolute.db")
	case path == "" || path == "//" || path == ":memory:" || strings.HasPrefix(path, "file:"):
		return database{}, errors.New("SM_DATABASE_URL must name a SQLite file by its path, such as sqlite:/absolute.db: a database in memory excludes no other process, and a file: URI is not read here")
	case strings.ContainsAny(path, "?\x00"):
		return database{}, errors.New("SM_DATABASE_URL: a SQLite file has no parameters, and no ? in its path")
	}
	// Which file it is matters more than how it was written.
	path, err := filepath.Abs(path)
	if err != nil {
		return database{}, fmt.Errorf("SM_DATABASE_URL: the path is relative, and there is no working directory: %w", err)
	}
	return database{file: path, target: target{
		kind: "sqlite", where: fmt.Sprintf("SQLite file %q", path), variable: "SM_DATABASE_URL",
		open: func(ctx context.Context) (*Runtime, error) { return openSQLite(ctx, path) },
	}}, nil
}

// openSQLite opens a file that has the table. One that is missing is not made:
// it would have no table either, and may be a slip in the path.
func openSQLite(ctx context.Context, path string) (*Runtime, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, failuref(err, "it does not exist (%s)", migrateHint)
	}
	db, err := sqlitelease.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkSQLite(ctx, db); err != nil {
		db.Close()
		return nil, err
	}
	return &Runtime{sqlite: db, backend: sqlitelease.New(db)}, nil
}

func checkSQLite(ctx context.Context, db *sql.DB) error {
	var n int
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'sm_lease'`).Scan(&n)
	if err == nil && n == 0 {
		err = failuref(nil, "the table sm_lease does not exist (%s)", migrateHint)
	}
	return err
}
