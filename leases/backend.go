package leases

import (
	"context"
	"fmt"
	"time"
)

// Claim is one attempt to acquire a name.
type Claim struct {
	Name  string        // 1 to 512 bytes
	Slots int           // 0: an exclusive lease; 1 to 100,000: a semaphore
	Owner string        // 1 to 256 bytes
	TTL   time.Duration // 1 ms to 10 years, rounded up to a millisecond
}

// Grant is the answer to a Claim.
type Grant struct {
	// Held is true only when the store has confirmed the hold.
	Held bool
	// Fence is the hold's fence; 0 when not held.
	Fence int64
	// RetryAfter is how long the holder that expires first still has; 0 when
	// held, or when unknown.
	RetryAfter time.Duration
}

// Hold names one granted acquisition.
type Hold struct {
	Name  string
	Slots int // as in the Claim
	Owner string
	Fence int64 // 0: whichever fence this owner has
}

// Backend keeps leases and semaphores in a store. It keeps the rules R1–R6
// and R11–R13 of this package's comment, by one clock, the store's; it knows
// nothing of waiting. Package leasetest proves one.
//
// Its methods are safe for concurrent use. Each returns soon after ctx ends,
// and in bounded time when ctx never does. An error says that the outcome is
// unknown, unless it matches ErrInvalid or ErrKind: then nothing was changed.
type Backend interface {
	// Acquire makes one attempt and never waits for the holder. An owner that
	// holds the name already gets a new, larger fence and a whole TTL (R4). A
	// name in use as the other kind is ErrKind. A busy name is a Grant with
	// Held false, not an error.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Refresh makes the hold last ttl from now, or reports false when the
	// store has no live hold of this name, kind, owner and fence.
	Refresh(ctx context.Context, h Hold, ttl time.Duration) (bool, error)

	// Release ends the hold, or reports false when the store has no live hold
	// of this name, kind, owner and fence.
	Release(ctx context.Context, h Hold) (bool, error)
}

// Waker is an ability that a Backend may have besides: to hear of releases in
// other processes. What it tells is a hint. A wake-up too many costs an
// attempt, and a lost one the back-off (R7).
type Waker interface {
	// Watch calls wake, which does not block, soon after each release of name
	// until stop is called. It returns once later releases will be heard, soon
	// after ctx ends, and in bounded time; what it watches does not end with
	// ctx. After an error the waiters rely on their back-off, and it is called
	// again. stop does not block.
	Watch(ctx context.Context, name string, wake func()) (stop func(), err error)
}

// Sequencer is an ability that a Backend may have besides, and instead of
// Waker: to serve the processes that wait for a name in the order in which they
// came. It keeps a line for each name, in which a ticket, 1 to 64 bytes, stands
// for the waiters of one process. What becomes free is for the ticket that has
// stood there longest: it is its turn. A turn ends soon when it is not taken,
// so that a process that died costs the others little. All the rest is busy
// meanwhile, but for an owner that holds the name already (R4).
type Sequencer interface {
	// AcquireInTurn is Acquire for the first of a process's waiters. A ticket
	// that is refused keeps its place in the line, or gets the last one. A
	// ticket that is granted leaves the line, or with again gets the last
	// place for the waiter behind it.
	AcquireInTurn(ctx context.Context, c Claim, ticket string, again bool) (Grant, error)

	// WatchTurn is Waker's Watch for the turns of ticket: they are hints too.
	WatchTurn(ctx context.Context, name, ticket string, wake func()) (stop func(), err error)

	// LeaveLine gives the place of ticket up, and its turn to the next.
	LeaveLine(ctx context.Context, name, ticket string) error
}

// KindError is what a backend returns when c's name is in use as the other
// kind. It matches ErrKind.
func (c Claim) KindError() error {
	held, asked := "semaphore", "lease"
	if c.Slots > 0 {
		held, asked = asked, held
	}
	return &failure{fmt.Sprintf("leases: wrong kind: %q is in use as a %s and can't be a %s before that ends", c.Name, held, asked), ErrKind}
}
