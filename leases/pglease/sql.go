package pglease

import (
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/acquire_lease.sql
	acquireLeaseSQL string
	//go:embed sql/queue.sql
	queueSQL string
	//go:embed sql/acquire_slot.sql
	acquireSlotSQL string
	//go:embed sql/refresh.sql
	refreshSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/watch.sql
	watchSQL string
	//go:embed sql/unwatch.sql
	unwatchSQL string
	//go:embed sql/notify.sql
	notifySQL string
	//go:embed sql/guard_lock.sql
	guardLockSQL string
	//go:embed sql/guard_current.sql
	guardCurrentSQL string
	//go:embed sql/guard_check.sql
	guardCheckSQL string
)

const table = "sm_lease"

// queries are the statements for the table in one schema.
type queries struct {
	acquireLease, queue, acquireSlot, refresh, release string
	guardLock, guardCurrent, guardCheck                string
}

// onSearchPath leaves it to the search_path which schema that is.
var onSearchPath = newQueries("")

func newQueries(schema string) *queries {
	in := func(sql string) string { return sql }
	if schema != "" {
		in = strings.NewReplacer(table, pgx.Identifier{schema, table}.Sanitize()).Replace
	}
	return &queries{
		in(acquireLeaseSQL), in(queueSQL), in(acquireSlotSQL), in(refreshSQL), in(releaseSQL),
		in(guardLockSQL), in(guardCurrentSQL), in(guardCheckSQL),
	}
}
