package leases

import "sync/atomic"

type configured struct{ backend Backend }

var processWide atomic.Pointer[configured]

// Configure sets the backend of every handle in this process that names none
// by On. It takes effect at the next acquire; holds stay with the backend that
// granted them. nil restores a fresh in-process backend, which is also what a
// process has before the first call. Safe for concurrent use.
func Configure(b Backend) {
	if b == nil {
		b = NewInProcess()
	}
	processWide.Store(&configured{b})
}

// Default returns the process-wide backend.
func Default() Backend {
	for {
		if c := processWide.Load(); c != nil {
			return c.backend
		}
		processWide.CompareAndSwap(nil, &configured{NewInProcess()})
	}
}
