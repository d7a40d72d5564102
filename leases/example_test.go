package leases_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simple-module/core/leases"
)

// Only one worker at a time imports dataset 42; another one is told so.
func ExampleLease() {
	ctx := context.Background()
	importer := leases.Lease("import:42", time.Minute)
	if err := importer.Acquire(ctx); err != nil {
		fmt.Println(err)
		return
	}
	defer importer.Release(ctx)

	err := leases.Lease("import:42", time.Minute, leases.NonBlocking()).Acquire(ctx)
	var busy *leases.NotAcquiredError
	if errors.As(err, &busy) {
		fmt.Println(busy.Name, "is busy, at most for", busy.RetryAfter.Round(time.Minute))
	}
	// Output: import:42 is busy, at most for 1m0s
}

// Do acquires, runs and releases. Its ctx ends when the lease is lost.
func ExampleHandle_Do() {
	h := leases.Lease("index", time.Minute, leases.KeepAlive())
	err := h.Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("rebuilding")
		return ctx.Err()
	})
	fmt.Println(err, h.Deadline().IsZero())
	// Output:
	// rebuilding
	// <nil> true
}

// At most two downloads from a host at a time; the others wait.
func ExampleSemaphore() {
	var mu sync.Mutex
	var open, most, done int
	download := func(ctx context.Context) error {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		open--
		done++
		mu.Unlock()
		return nil
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_ = leases.Semaphore("host:example.org", 2, time.Minute).Do(context.Background(), download)
		})
	}
	all.Wait()
	fmt.Println(done, "downloads, never more than 2 at once:", most <= 2)
	// Output: 8 downloads, never more than 2 at once: true
}

// KeepAlive holds for as long as the work takes, with a TTL that is short
// enough for others to go on soon after a crash.
func ExampleKeepAlive() {
	h := leases.Lease("report", 10*time.Second, leases.KeepAlive())
	err := h.Do(context.Background(), func(ctx context.Context) error {
		pages := 0
		for ctx.Err() == nil && pages < 100 { // may take an hour
			pages++
		}
		fmt.Println(pages, "pages")
		return context.Cause(ctx) // ErrLost when the store stayed away for too long
	})
	fmt.Println(err)
	// Output:
	// 100 pages
	// <nil>
}

// A retry of a task has the task's ID as its owner, and gets the lease of the
// attempt that died at once.
func ExampleOwner() {
	ctx := context.Background()
	died := leases.Lease("import:43", 10*time.Minute, leases.Owner("task-7"))
	retry := leases.Lease("import:43", 10*time.Minute, leases.Owner("task-7"))
	other := leases.Lease("import:43", 10*time.Minute, leases.Owner("task-8"))

	fmt.Println(died.Acquire(ctx))
	fmt.Println(retry.Acquire(ctx), retry.Fence() > died.Fence())
	fmt.Println(other.TryAcquire(ctx))
	fmt.Println(errors.Is(died.Refresh(ctx), leases.ErrLost))
	fmt.Println(retry.Release(ctx))
	// Output:
	// <nil>
	// <nil> true
	// false <nil>
	// true
	// <nil>
}

// Code below the handler finds the handle in its ctx.
func ExampleFromContext() {
	write := func(ctx context.Context) error {
		h, ok := leases.FromContext(ctx)
		fmt.Println(h.Name(), ok, h.Fence() > 0)
		return nil
	}
	_ = leases.Lease("import:44", time.Minute).Do(context.Background(), write)
	// Output: import:44 true true
}

// The resource keeps the largest fence that it has seen and refuses a smaller
// one: the late write of a former holder.
func ExampleHandle_Fence() {
	ctx := context.Background()
	seen := int64(0)
	write := func(fence int64, text string) {
		if fence < seen {
			fmt.Println("refused:", text)
			return
		}
		seen = fence
		fmt.Println("written:", text)
	}

	stalled := leases.Lease("file", 10*time.Millisecond)
	_ = stalled.Acquire(ctx)
	time.Sleep(20 * time.Millisecond) // the TTL passes
	next := leases.Lease("file", time.Minute)
	_ = next.Acquire(ctx)
	defer next.Release(ctx)

	write(next.Fence(), "by the next holder")
	write(stalled.Fence(), "by the one that stalled")
	// Output:
	// written: by the next holder
	// refused: by the one that stalled
}

// At most once in five minutes: acquire and don't release.
func ExampleHandle_TryAcquire() {
	ctx := context.Background()
	notify := func() {
		ok, err := leases.Lease("notify:alice", 5*time.Minute).TryAcquire(ctx)
		fmt.Println(ok, err)
	}
	notify()
	notify()
	// Output:
	// true <nil>
	// false <nil>
}
