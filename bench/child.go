package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// What a process of its own does is in its environment.
const (
	childVariable   = "BENCH_CHILD"
	libraryVariable = "BENCH_LIBRARY"
	spanVariable    = "BENCH_SPAN"
)

// runChild is main in a child; it reports false in the parent.
func runChild(ctx context.Context, e *env) (bool, error) {
	kind := os.Getenv(childVariable)
	if kind == "" {
		return false, nil
	}
	if kind == "queue" {
		return true, queueChild(ctx, e)
	}
	lock, err := newLocker(ctx, e, os.Getenv(libraryVariable))
	if err != nil {
		return true, err
	}
	if kind == "waiter" {
		return true, waiter(ctx, lock)
	}
	span, err := time.ParseDuration(os.Getenv(spanVariable))
	if err != nil {
		return true, err
	}
	return true, contender(ctx, lock, span)
}

// child is another process of this program.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(kind, library string, env ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(append(os.Environ(), childVariable+"="+kind, libraryVariable+"="+library), env...)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

func (c *child) say(line string) error {
	_, err := fmt.Fprintln(c.in, line)
	return err
}

// hear reads one JSON value that the child has printed.
func (c *child) hear(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("a child ended: %w", err)
	}
	return json.Unmarshal(line, v)
}

// end lets the child end by itself.
func (c *child) end() error {
	c.in.Close()
	return c.cmd.Wait()
}

// waiter acquires for each line that it reads, and says when it had the lock:
// by the wall clock, which both processes share.
func waiter(ctx context.Context, lock locker) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		release, err := lock(ctx, lines.Text())
		if err != nil {
			return err
		}
		acquired := time.Now().UnixNano()
		if err := release(); err != nil {
			return err
		}
		fmt.Println(acquired)
	}
	return lines.Err()
}

// handoffs returns the median time in milliseconds from just before a release
// to when a waiter in another process has the lock. The waiter has been waiting
// for a random time of some tens of milliseconds.
func handoffs(ctx context.Context, e *env, library string, n int) (float64, error) {
	lock, err := newLocker(ctx, e, library)
	if err != nil {
		return 0, err
	}
	other, err := startChild("waiter", library)
	if err != nil {
		return 0, err
	}
	var took []float64
	for i := range n {
		release, err := lock(ctx, "handoff")
		if err != nil {
			return 0, err
		}
		if err := other.say("handoff"); err != nil {
			return 0, err
		}
		time.Sleep(time.Duration(30+7*i%40) * time.Millisecond)
		before := time.Now().UnixNano()
		if err := release(); err != nil {
			return 0, err
		}
		var acquired int64
		if err := other.hear(&acquired); err != nil {
			return 0, err
		}
		took = append(took, float64(acquired-before)/1e6)
	}
	return median(took), other.end()
}

// share is what the workers of one process have done.
type share struct {
	Acquired []int     // by each worker
	Waits    []float64 // ms
	Held     float64   // s
}

// contender has four workers that hold the lock for 5 ms and then think for
// 20 ms, from when a line is read.
func contender(ctx context.Context, lock locker, span time.Duration) error {
	fmt.Println("true")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	const workers = 4
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		done = share{Acquired: make([]int, workers)}
		errs = make([]error, workers)
		end  = time.Now().Add(span)
	)
	for w := range workers {
		all.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				release, err := lock(ctx, "fair")
				if err != nil {
					errs[w] = err
					return
				}
				acquired := time.Now()
				time.Sleep(5 * time.Millisecond)
				held := time.Since(acquired)
				if err := release(); err != nil {
					errs[w] = err
					return
				}
				mu.Lock()
				done.Acquired[w]++
				done.Waits = append(done.Waits, float64(acquired.Sub(began))/1e6)
				done.Held += held.Seconds()
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

// contend runs four contenders at once.
func contend(e *env, library string, span time.Duration) (total share, wall float64, err error) {
	var children []*child
	for range 4 {
		c, err := startChild("contender", library, spanVariable+"="+span.String())
		if err != nil {
			return total, 0, err
		}
		children = append(children, c)
		var ready bool
		if err := c.hear(&ready); err != nil {
			return total, 0, err
		}
	}
	began := time.Now()
	for _, c := range children {
		if err := c.say("go"); err != nil {
			return total, 0, err
		}
	}
	for _, c := range children {
		var s share
		if err := c.hear(&s); err != nil {
			return total, 0, err
		}
		total.Acquired = append(total.Acquired, s.Acquired...)
		total.Waits = append(total.Waits, s.Waits...)
		total.Held += s.Held
	}
	wall = time.Since(began).Seconds()
	for _, c := range children {
		if err := c.end(); err != nil {
			return total, 0, err
		}
	}
	return total, wall, nil
}
