package pglease

import _ "embed"

var (
	//go:embed sql/acquire_lease.sql
	acquireLeaseSQL string
	//go:embed sql/acquire_semaphore.sql
	acquireSemaphoreSQL string
	//go:embed sql/own.sql
	ownSQL string
	//go:embed sql/refresh.sql
	refreshSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/guard.sql
	guardSQL string
)
