package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/simple-module/core/examples/internal/service"
)

// fleet is the web process and the workers.
type fleet struct {
	web   string // its address
	procs []*process
}

// process is a program that was started; done receives its end.
type process struct {
	*exec.Cmd
	done chan error
}

// startFleet builds the programs, makes the table and starts the processes
// with one environment.
func startFleet(ctx context.Context, dir string, o *origins) (_ *fleet, err error) {
	const module = "github.com/simple-module/core/"
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator),
		module+"examples/web", module+"examples/worker", module+"migrations/cmd/migrate")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	if os.Getenv("SM_REDIS_URL") == "" {
		if os.Getenv("SM_DATABASE_URL") == "" {
			os.Setenv("SM_DATABASE_URL", "sqlite:///"+filepath.Join(dir, "demo.db"))
		}
		migrate := exec.CommandContext(ctx, filepath.Join(dir, "migrate"))
		migrate.Stdout, migrate.Stderr = os.Stderr, os.Stderr
		if err := migrate.Run(); err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
	}

	f := &fleet{}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	f.web = "http://" + addr
	files := filepath.Join(dir, "downloads")
	queue := "demo-" + strings.ToLower(rand.Text()[:8]) // so that tasks of another run are left alone
	if err := f.start(filepath.Join(dir, "web"), "ADDR="+addr, "-queue", queue, "-dir", files); err != nil {
		return nil, err
	}
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	worker := []string{"-queue", queue, "-dir", files, "-slots", fmt.Sprint(slots), "-import-from", "http://" + o.hosts[0].name}
	for _, h := range o.hosts {
		worker = append(worker, "-resolve", h.name+"="+h.addr)
	}
	for range 2 {
		if err := f.start(filepath.Join(dir, "worker"), "", worker...); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (f *fleet) start(program, env string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), env)
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd, make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	f.procs = append(f.procs, p)
	return nil
}

// ready waits until the web process answers.
func (f *fleet) ready(ctx context.Context) error {
	for {
		resp, err := http.Get(f.web + "/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case err := <-f.procs[0].done:
			f.procs = nil
			return fmt.Errorf("web has ended: %v", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop drains the processes, and is done when all have ended.
func (f *fleet) stop() error {
	var errs []error
	for _, p := range f.procs {
		p.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range f.procs {
		if err := <-p.done; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Base(p.Path), err))
		}
	}
	f.procs = nil
	return errors.Join(errs...)
}

// sent is what the web process was asked for.
type sent struct {
	downloads int // accepted
	imports   int // accepted
	refused   int // imports answered with 409
}

func (s sent) tasks() int { return s.downloads + s.imports }

// send asks for all downloads and imports. An import that is refused because
// one of its dataset runs is not asked for again.
func (f *fleet) send(ctx context.Context, o *origins) (sent, error) {
	var s sent
	body, code, err := f.post(ctx, "/downloads", strings.Join(o.urls(), "\n"))
	if err != nil {
		return s, err
	}
	var answer struct{ Accepted int }
	if err := json.Unmarshal(body, &answer); err != nil || code != http.StatusAccepted {
		return s, fmt.Errorf("POST /downloads: %d %s", code, body)
	}
	s.downloads = answer.Accepted
	run, _, _ := strings.Cut(strings.TrimPrefix(o.hosts[0].name, "alpha-"), ".")
	for i := range imports {
		path := fmt.Sprintf("/imports/%s-%d", run, i%datasets)
		body, code, err := f.post(ctx, path, "")
		switch {
		case err != nil:
			return s, err
		case code == http.StatusAccepted:
			s.imports++
		case code == http.StatusConflict:
			s.refused++
		default:
			return s, fmt.Errorf("POST %s: %d %s", path, code, body)
		}
	}
	return s, nil
}

func (f *fleet) post(ctx context.Context, path, body string) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.web+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return data, resp.StatusCode, err
}

// status is what the web process answers.
type status struct {
	Queue   string
	Backend string
	service.Counts
}

// await shows progress until all tasks have ended.
func (f *fleet) await(ctx context.Context, o *origins, tasks int) (status, error) {
	start := time.Now()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for shown := ""; ; {
		st, err := f.status(ctx)
		if err != nil {
			return st, err
		}
		line := fmt.Sprintf("%d of %d tasks done, %d failed, %d in workers, %d waiting; open now: %s",
			st.Done, tasks, st.Failed, st.Running, st.Waiting, o.openNow())
		if line != shown {
			fmt.Printf("%5.1f s  %s\n", time.Since(start).Seconds(), line)
			shown = line
		}
		if st.Done+st.Failed >= tasks {
			return st, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return st, context.Cause(ctx)
		}
	}
}

func (f *fleet) status(ctx context.Context) (status, error) {
	var st status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.web+"/status", nil)
	if err != nil {
		return st, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return st, fmt.Errorf("GET /status: %s", resp.Status)
	}
	return st, json.NewDecoder(resp.Body).Decode(&st)
}
