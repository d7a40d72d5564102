package redislease

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
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

	acquireLease     = redis.NewScript(fenceLua + acquireLeaseLua)
	refreshLease     = redis.NewScript(refreshLeaseLua)
	releaseLease     = redis.NewScript(releaseLeaseLua)
	acquireSemaphore = redis.NewScript(fenceLua + acquireSemaphoreLua)
	refreshSemaphore = redis.NewScript(refreshSemaphoreLua)
	releaseSemaphore = redis.NewScript(releaseSemaphoreLua)
)
