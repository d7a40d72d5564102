package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/bootstrap"
	"github.com/simple-module/core/examples/internal/service"
	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
)

// start serves the routes over asynq on a real Redis.
func start(t *testing.T) (*httptest.Server, *server) {
	t.Helper()
	rt, err := bootstrap.Start(t.Context(), bootstrap.Settings{RedisURL: teststore.RedisURL(t)})
	require.NoError(t, err)
	t.Cleanup(func() { rt.Close(context.Background()) })
	log := slog.New(slog.DiscardHandler)
	q, err := service.Open(t.Context(), rt, "downloads", log)
	require.NoError(t, err)
	files, err := service.OpenFiles(t.TempDir())
	require.NoError(t, err)
	s := &server{rt: rt, queue: q, files: files, log: log}
	web := httptest.NewServer(s.routes())
	t.Cleanup(web.Close)
	return web, s
}

func do(t *testing.T, method, url, body string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer := map[string]any{}
	json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, resp.Header, answer
}

func TestDownloadsAreAcceptedAllOrNone(t *testing.T) {
	web, s := start(t)
	for _, test := range []struct {
		body string
		code int
		n    int
	}{
		{`{"url":"https://host.example/a"}`, http.StatusAccepted, 1},
		{"https://host.example/a\n\n  http://[::1]:8080/b \n", http.StatusAccepted, 2},
		{"", http.StatusBadRequest, 0},
		{"{", http.StatusBadRequest, 0},
		{`{"url":"ftp://host.example/a"}`, http.StatusBadRequest, 0},
		{"https://host.example/a\nnot a url", http.StatusBadRequest, 0},
		{"https:///nohost", http.StatusBadRequest, 0},
		{strings.Repeat("x", maxBody+1), http.StatusRequestEntityTooLarge, 0},
	} {
		before, err := s.queue.Counts(t.Context())
		require.NoError(t, err)
		code, _, answer := do(t, "POST", web.URL+"/downloads", test.body)
		require.Equal(t, test.code, code)
		if test.n > 0 {
			require.EqualValues(t, test.n, answer["accepted"])
		}
		after, err := s.queue.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, before.Waiting+test.n, after.Waiting, "%.40q", test.body)
	}
}

func TestImportIsRefusedWhileItRuns(t *testing.T) {
	web, s := start(t)
	code, _, _ := do(t, "POST", web.URL+"/imports/42", "")
	require.Equal(t, http.StatusAccepted, code)

	running := leases.Lease(service.ImportKey("42"), time.Minute, leases.On(s.rt.Backend())) // as a worker has it
	require.NoError(t, running.Acquire(t.Context()))
	code, header, _ := do(t, "POST", web.URL+"/imports/42", "")
	require.Equal(t, http.StatusConflict, code)
	require.NotEmpty(t, header.Get("Retry-After"))
	code, _, _ = do(t, "POST", web.URL+"/imports/43", "")
	require.Equal(t, http.StatusAccepted, code)

	require.NoError(t, running.Release(t.Context()))
	code, _, _ = do(t, "POST", web.URL+"/imports/42", "")
	require.Equal(t, http.StatusAccepted, code)
	code, _, _ = do(t, "POST", web.URL+"/imports/a%20b", "")
	require.Equal(t, http.StatusBadRequest, code)
}

func TestRebuildRunsOnceAtATime(t *testing.T) {
	web, s := start(t)
	s.rebuildTime = time.Hour // until the test has seen the refusal
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		for { // again if it has met the probe below
			req, _ := http.NewRequestWithContext(ctx, "POST", web.URL+"/index/rebuild", nil)
			resp, err := http.DefaultClient.Do(req)
			if errors.Is(err, context.Canceled) {
				return
			}
			if err != nil || resp.StatusCode != http.StatusConflict {
				t.Errorf("the first rebuild has ended: %v", err)
				return
			}
			resp.Body.Close()
		}
	})
	probe := leases.Lease("index:rebuild", time.Minute, leases.On(s.rt.Backend()))
	require.Eventually(t, func() bool {
		got, err := probe.TryAcquire(ctx)
		require.NoError(t, err)
		if got {
			require.NoError(t, probe.Release(ctx))
		}
		return !got
	}, time.Minute, time.Millisecond)
	code, header, _ := do(t, "POST", web.URL+"/index/rebuild", "")
	require.Equal(t, http.StatusConflict, code)
	require.NotEmpty(t, header.Get("Retry-After"))
	cancel() // the client goes away: the lease is given back
	first.Wait()
	require.Eventually(t, func() bool {
		got, err := probe.TryAcquire(t.Context())
		require.NoError(t, err)
		return got
	}, time.Minute, time.Millisecond)
	require.NoError(t, probe.Release(t.Context()))
}

func TestRebuildWritesTheIndex(t *testing.T) {
	web, _ := start(t)
	code, _, answer := do(t, "POST", web.URL+"/index/rebuild", "")
	require.Equal(t, http.StatusOK, code)
	require.EqualValues(t, 0, answer["files"])
}

func TestStatusAndHealth(t *testing.T) {
	web, _ := start(t)
	code, _, answer := do(t, "GET", web.URL+"/status", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, map[string]any{"queue": "asynq", "backend": "redis", "waiting": 0.0, "running": 0.0, "done": 0.0, "failed": 0.0}, answer)
	code, _, _ = do(t, "GET", web.URL+"/healthz", "")
	require.Equal(t, http.StatusOK, code)
}
