package redislease

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/line.lua
	lineLua string
	//go:embed lua/fence.lua
	fenceLua string
	//go:embed lua/acquire_lease.lua
	acquireLeaseLua string
	//go:embed lua/refresh_lease.lua
	refreshLeaseLua string
	//go:embed lua/release_lease.lua
	releaseLeaseLua string
	//go:embed lua/acquire_semaphore.lua
	acquireSemaphoreLua string
	//go:embed lua/refresh_semaphore.lua
	refreshSemaphoreLua string
	//go:embed lua/release_semaphore.lua
	releaseSemaphoreLua string
	//go:embed lua/leave_line.lua
	leaveLineLua string

	acquireLease     = redis.NewScript(lineLua + fenceLua + acquireLeaseLua)
	refreshLease     = redis.NewScript(refreshLeaseLua)
	releaseLease     = redis.NewScript(lineLua + releaseLeaseLua)
	acquireSemaphore = redis.NewScript(lineLua + fenceLua + acquireSemaphoreLua)
	refreshSemaphore = redis.NewScript(refreshSemaphoreLua)
	releaseSemaphore = redis.NewScript(lineLua + releaseSemaphoreLua)
	leaveLine        = redis.NewScript(lineLua + leaveLineLua)
)
