package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/examples/internal/service"
	httplease "github.com/simple-module/core/middleware/http"
)

type server struct {
	rt    *bootstrap.Runtime
	queue service.Queue
	files *service.Files
	log   *slog.Logger

	rebuildTime time.Duration
}

func (s *server) routes() http.Handler {
	// The lease of an import is the one that the worker runs it under: while
	// it is held there, the request is answered with 409.
	importing := httplease.Dedup(func(r *http.Request) (string, error) {
		dataset := r.PathValue("dataset")
		if !datasetName.MatchString(dataset) {
			return "", errors.New("dataset must be 1 to 200 letters, digits, '.', '_' or '-'")
		}
		return service.ImportKey(dataset), nil
	}, 30*time.Second)
	// A rebuild runs in this process: a second click is answered with 409.
	rebuilding := httplease.Dedup(func(*http.Request) (string, error) { return "index:rebuild", nil },
		30*time.Second, httplease.KeepAlive())

	mux := http.NewServeMux()
	mux.HandleFunc("POST /downloads", s.addDownloads)
	mux.Handle("POST /imports/{dataset}", importing(http.HandlerFunc(s.addImport)))
	mux.Handle("POST /index/rebuild", rebuilding(http.HandlerFunc(s.rebuildIndex)))
	mux.HandleFunc("GET /status", s.status)
	mux.HandleFunc("GET /healthz", s.healthz)
	return mux
}

var datasetName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)

const maxBody = 1 << 20 // bytes

// addDownloads takes {"url": …} or a list of URLs, one a line. All of them are
// good, or none is accepted.
func (s *server) addDownloads(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("body must be at most %d bytes: %v", maxBody, err), http.StatusRequestEntityTooLarge)
		return
	}
	tasks, err := parseDownloads(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for i, t := range tasks {
		if err := s.queue.Add(r.Context(), t); err != nil {
			s.log.Error("adding a download", "error", err)
			http.Error(w, fmt.Sprintf("the queue did not take it; accepted: the first %d of %d", i, len(tasks)), http.StatusServiceUnavailable)
			return
		}
	}
	writeJSON(w, http.StatusAccepted, map[string]int{"accepted": len(tasks)})
}

func parseDownloads(body []byte) ([]service.Download, error) {
	var tasks []service.Download
	if trimmed := bytes.TrimSpace(body); bytes.HasPrefix(trimmed, []byte("{")) {
		var d service.Download
		if err := json.Unmarshal(trimmed, &d); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		tasks = append(tasks, d)
	} else {
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				tasks = append(tasks, service.Download{URL: string(line)})
			}
		}
	}
	if len(tasks) == 0 {
		return nil, errors.New(`body must be {"url": "https://…"} or a list of URLs, one a line`)
	}
	for _, t := range tasks {
		u, err := url.Parse(t.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
			return nil, fmt.Errorf("url must be http:// or https:// with a host, got %q", t.URL)
		}
	}
	return tasks, nil
}

func (s *server) addImport(w http.ResponseWriter, r *http.Request) {
	dataset := r.PathValue("dataset")
	if err := s.queue.Add(r.Context(), service.Import{Dataset: dataset}); err != nil {
		s.log.Error("adding an import", "error", err)
		http.Error(w, "the queue did not take it", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusAccepted, map[string]string{"accepted": dataset})
}

// rebuildIndex writes the list of all files. r's context ends when the lease
// is lost, too.
func (s *server) rebuildIndex(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(s.rebuildTime):
	case <-r.Context().Done():
		http.Error(w, "the rebuild was given up", http.StatusServiceUnavailable)
		return
	}
	n, err := s.files.WriteIndex()
	if err != nil {
		s.log.Error("rebuilding the index", "error", err)
		http.Error(w, "the index could not be written", http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"files": n})
}

func (s *server) status(w http.ResponseWriter, r *http.Request) {
	counts, err := s.queue.Counts(r.Context())
	if err != nil {
		s.log.Error("counting tasks", "error", err)
		http.Error(w, "the queue does not answer", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Queue   string `json:"queue"`
		Backend string `json:"backend"`
		service.Counts
	}{s.queue.Name(), s.rt.Kind(), counts})
}

func (s *server) healthz(w http.ResponseWriter, r *http.Request) {
	if err := s.rt.Health(r.Context()); err != nil {
		s.log.Error("health", "error", err)
		http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v)
}
