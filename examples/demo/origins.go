package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-module/core/examples/internal/service"
)

// origins are the servers that the downloads come from. They count what is
// open at once, since they are what the slots protect.
type origins struct {
	hosts []*origin

	mu       sync.Mutex
	datasets map[string]*count
}

type origin struct {
	count
	owner  *origins
	addr   string
	server *http.Server
}

// count is guarded by origins.mu.
type count struct {
	name              string
	total, open, most int
}

func (c *count) enter() { c.total++; c.open++; c.most = max(c.most, c.open) }

const (
	serveTime  = 150 * time.Millisecond // a download takes about as long
	importTime = 300 * time.Millisecond
)

// startOrigins gives each server a host name of its own, and one that no other
// run of the demo uses.
func startOrigins() (*origins, error) {
	o := &origins{datasets: make(map[string]*count)}
	run := strings.ToLower(rand.Text()[:6])
	for _, name := range []string{"alpha", "beta", "gamma"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			o.close()
			return nil, err
		}
		host := &origin{count: count{name: name + "-" + run + ".example"}, owner: o, addr: listener.Addr().String()}
		mux := http.NewServeMux()
		mux.HandleFunc("GET /files/{n}", host.file)
		mux.HandleFunc("GET /datasets/{name}", host.dataset)
		host.server = &http.Server{Handler: mux}
		o.hosts = append(o.hosts, host)
		go host.server.Serve(listener)
	}
	return o, nil
}

func (o *origins) close() {
	for _, h := range o.hosts {
		h.server.Close()
	}
}

func (h *origin) file(w http.ResponseWriter, r *http.Request) {
	h.owner.serve(w, &h.count, content(r.URL.Path), serveTime)
}

func (h *origin) dataset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	h.owner.mu.Lock()
	c := h.owner.datasets[name]
	if c == nil {
		c = &count{name: name}
		h.owner.datasets[name] = c
	}
	h.owner.mu.Unlock()
	h.owner.serve(w, c, content(r.URL.Path), importTime)
}

// serve sends data in pieces, over about d. It counts the request as open
// until its last byte is on the way: after that the client may go on.
func (o *origins) serve(w http.ResponseWriter, c *count, data []byte, d time.Duration) {
	o.mu.Lock()
	c.enter()
	o.mu.Unlock()
	left := func() {
		o.mu.Lock()
		c.open--
		o.mu.Unlock()
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	flush := http.NewResponseController(w)
	const pieces = 5
	for i := range pieces {
		time.Sleep(d / pieces)
		if i == pieces-1 {
			left()
		}
		w.Write(data[i*len(data)/pieces : (i+1)*len(data)/pieces])
		flush.Flush()
	}
}

// content is what a path has: some tens of kilobytes that depend on it.
func content(path string) []byte {
	line := path + " " + hash([]byte(path)) + "\n"
	return []byte(strings.Repeat(line, 400+len(hash([]byte(path)))))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// urls are the downloads, spread over the hosts, and then those that are sent
// a second time.
func (o *origins) urls() []string {
	all := make([]string, 0, downloads+twice)
	for i := range downloads {
		all = append(all, fmt.Sprintf("http://%s/files/%d", o.hosts[i%len(o.hosts)].name, i))
	}
	return append(all, all[:twice]...)
}

func (o *origins) maxPerHost() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	most := 0
	for _, h := range o.hosts {
		most = max(most, h.most)
	}
	return most
}

func (o *origins) maxPerDataset() int {
	most := 0
	for _, d := range o.sortedDatasets() {
		most = max(most, d.most)
	}
	return most
}

func (o *origins) imports() int {
	n := 0
	for _, d := range o.sortedDatasets() {
		n += d.total
	}
	return n
}

func (o *origins) sortedDatasets() []count {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []count
	for _, d := range o.datasets {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b count) int { return strings.Compare(a.name, b.name) })
	return all
}

// openNow is what each host has open, for the progress line.
func (o *origins) openNow() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var s []string
	for _, h := range o.hosts {
		short, _, _ := strings.Cut(h.name, "-")
		s = append(s, fmt.Sprintf("%s %d", short, h.open))
	}
	return strings.Join(s, ", ")
}

// check compares every file with what its origin sent and returns how many
// are whole.
func (o *origins) check(dir string) (good int, wrong error) {
	files, err := service.OpenFiles(dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, u := range o.urls()[:downloads] {
		rec, ok, err := files.Record(u)
		if err != nil || !ok {
			errs = append(errs, fmt.Errorf("%s: no file (%v)", u, err))
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, rec.File))
		_, path, _ := strings.Cut(u, ".example")
		if err != nil || hash(data) != hash(content(path)) {
			errs = append(errs, fmt.Errorf("%s: the file is not what was sent (%v)", u, err))
			continue
		}
		good++
	}
	if parts, _ := filepath.Glob(filepath.Join(dir, "*", "*.part")); len(parts) > 0 {
		errs = append(errs, fmt.Errorf("temporary files are left behind: %s", parts))
	}
	return good, errors.Join(errs...)
}
