package httplease_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	httplease "github.com/simple-module/core/middleware/http"
)

const bound = time.Minute // on a hang, not a measure

func byPath(r *http.Request) (string, error) { return "path:" + r.URL.Path, nil }

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // panics are part of the tests
	s.Start()
	t.Cleanup(s.Close)
	s.Client().Timeout = bound
	return s
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func do(s *httptest.Server, method, path string) reply {
	req, err := http.NewRequest(method, s.URL+path, nil)
	if err != nil {
		return reply{err: err}
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

func post(s *httptest.Server, path string) reply { return do(s, "POST", path) }

// await returns what c brings.
func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(bound):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// async starts a request and returns where its reply comes.
func async(s *httptest.Server, method, path string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- do(s, method, path) }()
	return c
}

// work is a handler whose requests run until they are let go.
type work struct {
	started chan *http.Request
	goOn    chan struct{}
}

func newWork() *work {
	return &work{make(chan *http.Request, 100), make(chan struct{}, 100)}
}

func (h *work) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.started <- r
	select {
	case <-h.goOn:
		io.WriteString(w, "done")
	case <-r.Context().Done():
	}
}

func requireProblem(t *testing.T, got reply, status int, kind string) {
	t.Helper()
	require.NoError(t, got.err)
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	require.NoError(t, json.Unmarshal([]byte(got.body), &p))
	require.Equal(t, kind, p.Type)
	require.Equal(t, status, p.Status)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
}

func TestR1_TheSecondClickIsAnsweredWith409(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		h := newWork()
		s := serve(t, httplease.Dedup(byPath, 90*time.Second, httplease.On(b))(h))
		first := async(s, "POST", "/rebuild")
		await(t, h.started)

		second := post(s, "/rebuild")
		requireProblem(t, second, http.StatusConflict, httplease.TypeBusy)
		require.NotContains(t, second.body, "rebuild", "the key is nobody's business")
		seconds, err := strconv.Atoi(second.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, seconds)
		require.LessOrEqual(t, seconds, 90)

		other := async(s, "POST", "/other")
		await(t, h.started)
		h.goOn <- struct{}{}
		h.goOn <- struct{}{}
		for _, c := range []<-chan reply{first, other} {
			require.Equal(t, "done", await(t, c).body)
		}
		h.goOn <- struct{}{}
		require.Equal(t, http.StatusOK, post(s, "/rebuild").status, "released with the answer")
	})
}

// Many clients at once, for as long as it takes to see each of them run.
func TestR1_ConcurrentRequestsNeverRunTogether(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		var running, most, ran, refused atomic.Int64
		// Two servers, as two processes have one each.
		var servers []*httptest.Server
		for range 2 {
			servers = append(servers, serve(t, httplease.Dedup(byPath, bound, httplease.On(b))(http.HandlerFunc(
				func(http.ResponseWriter, *http.Request) {
					n := running.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Millisecond)
					running.Add(-1)
				}))))
		}
		var all sync.WaitGroup
		failures := make(chan error, 16)
		for i := range 16 {
			all.Go(func() {
				for n := 0; n < 5; {
					got := post(servers[i%2], "/rebuild")
					switch {
					case got.status == http.StatusOK:
						n++
						ran.Add(1)
					case got.status == http.StatusConflict:
						refused.Add(1)
					default:
						failures <- fmt.Errorf("%d %s %w", got.status, got.body, got.err)
						return
					}
				}
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, most.Load())
		require.EqualValues(t, 16*5, ran.Load())
		require.Positive(t, refused.Load())
	})
}

func TestHEADHasTheSameHeadersAndNoBody(t *testing.T) {
	h := newWork()
	s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(leases.NewInProcess()))(h))
	first := async(s, "GET", "/x")
	await(t, h.started)
	full, head := do(s, "GET", "/x"), do(s, "HEAD", "/x")
	require.NoError(t, head.err)
	require.Equal(t, http.StatusConflict, head.status)
	require.Empty(t, head.body)
	for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control"} {
		require.Equal(t, full.header.Get(name), head.header.Get(name), name)
	}
	require.NotEmpty(t, head.header.Get("Retry-After"))
	h.goOn <- struct{}{}
	await(t, first)
}

func TestRetryAfterIsRoundedUpToAWholeSecond(t *testing.T) {
	for remaining, want := range map[time.Duration]string{
		0:                                     "1", // unknown
		time.Millisecond:                      "1",
		time.Second:                           "1",
		time.Second + 1:                       "2",
		90 * time.Second:                      "90",
		10*time.Minute + 500*time.Millisecond: "601",
	} {
		s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(fixed{grant: leases.Grant{RetryAfter: remaining}}))(newWork()))
		require.Equal(t, want, post(s, "/").header.Get("Retry-After"), remaining)
	}
}

// fixed is a backend that always gives the same answer.
type fixed struct {
	grant leases.Grant
	err   error
}

func (f fixed) Acquire(context.Context, leases.Claim) (leases.Grant, error) { return f.grant, f.err }
func (f fixed) Refresh(context.Context, leases.Hold, time.Duration) (bool, error) {
	return false, f.err
}
func (f fixed) Release(context.Context, leases.Hold) (bool, error) { return false, f.err }

// logs is a logger and what it has written.
func logs() (*slog.Logger, *synced) {
	b := new(synced)
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelInfo})), b
}

type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func mustNotRun(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran unguarded") })
}

func TestR6_AStoreThatFailsIs503AndNeverBusy(t *testing.T) {
	for name, opts := range map[string][]httplease.Option{
		"release": nil, "hold": {httplease.HoldThroughTTL()}, "wait": {httplease.Wait(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			log, written := logs()
			b := fixed{err: errors.New("dial tcp 10.0.0.7:6379: password hunter2 refused")}
			opts = append(opts, httplease.On(b), httplease.Logger(log))
			s := serve(t, httplease.Dedup(byPath, time.Minute, opts...)(mustNotRun(t)))
			got := post(s, "/rebuild")
			requireProblem(t, got, http.StatusServiceUnavailable, "about:blank")
			require.NotContains(t, got.body, "10.0.0.7")
			require.Empty(t, got.header.Get("Retry-After"))
			require.Contains(t, written.String(), "10.0.0.7")
			require.Contains(t, written.String(), "level=ERROR")
		})
	}
}

func TestAKeyThatFailsIs400(t *testing.T) {
	log, written := logs()
	key := func(*http.Request) (string, error) { return "ignored", errors.New("no session cookie") }
	s := serve(t, httplease.Dedup(key, time.Minute, httplease.On(leases.NewInProcess()), httplease.Logger(log))(mustNotRun(t)))
	got := post(s, "/rebuild")
	requireProblem(t, got, http.StatusBadRequest, "about:blank")
	require.NotContains(t, got.body, "cookie")
	require.Contains(t, written.String(), "no session cookie")
}

func TestAnEmptyKeyNeedsNoLease(t *testing.T) {
	h := newWork()
	key := func(*http.Request) (string, error) { return "", nil }
	s := serve(t, httplease.Dedup(key, time.Minute, httplease.On(fixed{err: errors.New("not asked")}))(h))
	first, second := async(s, "POST", "/"), async(s, "POST", "/")
	for range 2 {
		_, guarded := leases.FromContext(await(t, h.started).Context())
		require.False(t, guarded)
	}
	close(h.goOn)
	require.Equal(t, "done", await(t, first).body)
	require.Equal(t, "done", await(t, second).body)
}

func TestR11_MisuseIsLoggedAtOnceAndAnsweredWith500(t *testing.T) {
	for want, dedup := range map[string]func(...httplease.Option) func(http.Handler) http.Handler{
		"ttl must be 1ms to 10 years": func(o ...httplease.Option) func(http.Handler) http.Handler {
			return httplease.Dedup(byPath, 0, o...)
		},
		"got 87600h0m1s": func(o ...httplease.Option) func(http.Handler) http.Handler {
			return httplease.Dedup(byPath, leases.MaxTTL+time.Second, o...)
		},
		"wait must be 0 or more": func(o ...httplease.Option) func(http.Handler) http.Handler {
			return httplease.Dedup(byPath, time.Minute, append(o, httplease.Wait(-1))...)
		},
		"backend must be a backend": func(o ...httplease.Option) func(http.Handler) http.Handler {
			return httplease.Dedup(byPath, time.Minute, append(o, httplease.On(nil))...)
		},
		"key must not be nil": func(o ...httplease.Option) func(http.Handler) http.Handler {
			return httplease.Dedup(nil, time.Minute, o...)
		},
	} {
		t.Run(want, func(t *testing.T) {
			log, written := logs()
			wrap := dedup(httplease.Logger(log))
			require.Contains(t, written.String(), want)
			require.Contains(t, written.String(), "level=ERROR")
			requireProblem(t, post(serve(t, wrap(mustNotRun(t))), "/"), http.StatusInternalServerError, "about:blank")
		})
	}
	t.Run("in bounds", func(t *testing.T) {
		log, written := logs()
		httplease.Dedup(byPath, time.Minute, nil, httplease.Logger(log), httplease.Wait(0))
		require.Empty(t, written.String())
	})
}

func TestR12_ANameInUseAsASemaphoreIs500(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		require.NoError(t, leases.Semaphore("path:/x", 2, time.Minute, leases.On(b)).Acquire(t.Context()))
		log, written := logs()
		s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(b), httplease.Logger(log))(mustNotRun(t)))
		requireProblem(t, post(s, "/x"), http.StatusInternalServerError, "about:blank")
		require.Contains(t, written.String(), "wrong kind")
	})
}

// A key of any length and any bytes is one lease.
func TestKeysThatAreNoNames(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		h := newWork()
		key := func(r *http.Request) (string, error) { return r.FormValue("key"), nil }
		s := serve(t, httplease.Dedup(key, time.Minute, httplease.On(b))(h))
		long := strings.Repeat("x", 5000)
		keys := []string{long + "1", long + "2", "%00", "%ff", "a%00"}
		var firsts []<-chan reply
		for _, k := range keys {
			firsts = append(firsts, async(s, "POST", "/?key="+k))
			await(t, h.started)
		}
		for _, k := range keys {
			require.Equal(t, http.StatusConflict, post(s, "/?key="+k).status, "%.20s", k)
		}
		close(h.goOn)
		for _, c := range firsts {
			require.Equal(t, "done", await(t, c).body)
		}
	})
}

func TestR7_WaitRunsTheRequestOnceTheOtherIsDone(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		h := newWork()
		s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(b), httplease.Wait(bound))(h))
		first := async(s, "POST", "/x")
		await(t, h.started)
		second := async(s, "POST", "/x")
		short := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(b), httplease.Wait(20*time.Millisecond))(mustNotRun(t)))
		requireProblem(t, post(short, "/x"), http.StatusConflict, httplease.TypeBusy)
		h.goOn <- struct{}{}
		require.Equal(t, "done", await(t, first).body)
		await(t, h.started)
		h.goOn <- struct{}{}
		require.Equal(t, "done", await(t, second).body)
	})
}

func TestOnBusyReplacesThe409(t *testing.T) {
	b := fixed{grant: leases.Grant{RetryAfter: 3 * time.Second}}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "on its way: "+w.Header().Get("Retry-After"))
	})
	s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(b), httplease.OnBusy(page))(mustNotRun(t)))
	got := post(s, "/")
	require.Equal(t, http.StatusAccepted, got.status)
	require.Equal(t, "on its way: 3", got.body)
}

func TestHoldThroughTTL(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		const ttl = 2 * time.Second
		s := serve(t, httplease.Dedup(byPath, ttl, httplease.On(b), httplease.HoldThroughTTL(), httplease.KeepAlive())(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/fails":
					http.Error(w, "sorry", http.StatusInternalServerError)
				case "/panics":
					panic(http.ErrAbortHandler)
				case "/releases":
					h, _ := leases.FromContext(r.Context())
					if err := h.Release(r.Context()); err != nil {
						t.Error(err)
					}
				}
			})))
		require.Equal(t, 200, post(s, "/releases").status)
		require.Equal(t, 200, post(s, "/releases").status)
		for path, status := range map[string]int{"/succeeds": 200, "/fails": 500, "/panics": 0} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				require.Equal(t, status, post(s, path).status)
				again := post(s, path)
				for again.status == http.StatusConflict {
					time.Sleep(20 * time.Millisecond)
					again = post(s, path)
				}
				require.Equal(t, status, again.status)
				require.GreaterOrEqual(t, time.Since(start), ttl)
			})
		}
	})
}

// However a request ends, the next one runs.
func TestR9_TheHoldEndsWithTheHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		started := make(chan struct{}, 1)
		cancelled := make(chan error, 1)
		s := serve(t, httplease.Dedup(byPath, time.Hour, httplease.On(b))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/panics":
					panic("oops")
				case "/aborts":
					panic(http.ErrAbortHandler)
				case "/releases":
					h, ok := leases.FromContext(r.Context())
					if !ok || h.Fence() == 0 || h.Name() != "path:/releases" {
						t.Error("not the handle of this request")
					}
					if err := h.Release(r.Context()); err != nil {
						t.Error(err)
					}
				case "/hangs":
					if r.FormValue("again") != "" {
						return
					}
					started <- struct{}{}
					<-r.Context().Done()
					cancelled <- context.Cause(r.Context())
				}
			})))
		for range 3 {
			require.Error(t, post(s, "/panics").err)
			require.Error(t, post(s, "/aborts").err)
			require.Equal(t, http.StatusOK, post(s, "/releases").status)
			require.Equal(t, http.StatusOK, post(s, "/returns").status)
		}

		ctx, goAway := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/hangs", nil)
		require.NoError(t, err)
		gone := make(chan error, 1)
		go func() {
			resp, err := s.Client().Do(req)
			if err == nil {
				resp.Body.Close()
			}
			gone <- err
		}()
		await(t, started)
		require.Equal(t, http.StatusConflict, post(s, "/hangs?again=1").status)
		goAway()
		require.ErrorIs(t, await(t, gone), context.Canceled)
		require.NotErrorIs(t, await(t, cancelled), leases.ErrLost, "the client went, the hold was not lost")
		require.Eventually(t, func() bool { return post(s, "/hangs?again=1").status == http.StatusOK }, bound, 10*time.Millisecond)
	})
}

func TestR8_ALostHoldEndsTheRequest(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		log, written := logs()
		causes := make(chan error, 10)
		s := serve(t, httplease.Dedup(byPath, time.Second, httplease.On(b), httplease.Logger(log))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/partly" {
					io.WriteString(w, "some of it")
				}
				w.Header().Set("ETag", `"of the answer that never came"`)
				<-r.Context().Done()
				causes <- context.Cause(r.Context())
				if r.URL.Path == "/answers" {
					http.Error(w, "stopped", http.StatusGatewayTimeout)
				}
			})))

		got := post(s, "/silent")
		requireProblem(t, got, http.StatusServiceUnavailable, httplease.TypeLost)
		require.Empty(t, got.header.Get("ETag"))
		require.ErrorIs(t, await(t, causes), leases.ErrLost)
		require.Contains(t, written.String(), "lease lost while the request ran")

		got = post(s, "/answers")
		require.Equal(t, http.StatusGatewayTimeout, got.status)
		require.Equal(t, "stopped\n", got.body)

		got = post(s, "/partly")
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, "some of it", got.body)
	})
}

func TestR10_KeepAliveCarriesALongRequest(t *testing.T) {
	onEach(t, func(t *testing.T, b leases.Backend) {
		const ttl = 2 * time.Second
		h := newWork()
		s := serve(t, httplease.Dedup(byPath, ttl, httplease.On(b), httplease.KeepAlive())(h))
		first := async(s, "POST", "/x")
		r := await(t, h.started)
		time.Sleep(2 * ttl) // that it lasts longer than the TTL is the point
		require.NoError(t, r.Context().Err())
		require.Equal(t, http.StatusConflict, post(s, "/x").status)
		h.goOn <- struct{}{}
		require.Equal(t, "done", await(t, first).body)
	})
}

// Streaming, taking the connection over, 1xx answers and sendfile work as they
// do without the middleware, for new handlers and for old ones.
func TestHandlersReachWhatTheServersWriterCanDo(t *testing.T) {
	read := make(chan struct{})
	s := serve(t, httplease.Dedup(byPath, time.Minute, httplease.On(leases.NewInProcess()))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			switch r.URL.Path {
			case "/stream":
				io.WriteString(w, "one\n")
				if err := rc.Flush(); err != nil {
					t.Error(err)
				}
				<-read
				io.WriteString(w, "two\n")
				w.(http.Flusher).Flush()
				<-read
			case "/hijack":
				conn, rw, err := rc.Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\nHijacked: yes\r\n\r\n")
				rw.Flush()
			case "/hijack-old":
				conn, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				rw.WriteString("HTTP/1.1 204 No Content\r\nConnection: close\r\nHijacked: yes\r\n\r\n")
				rw.Flush()
			case "/deadline":
				if err := rc.SetWriteDeadline(time.Now().Add(bound)); err != nil {
					t.Error(err)
				}
				if err := rc.EnableFullDuplex(); err != nil {
					t.Error(err)
				}
			case "/early":
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusCreated)
			case "/copy":
				io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20)))
			}
		})))

	resp, err := s.Client().Get(s.URL + "/stream")
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"one\n", "two\n"} {
		got, err := lines.ReadString('\n') // while the handler still runs
		require.NoError(t, err)
		require.Equal(t, want, got)
		read <- struct{}{}
	}
	for _, path := range []string{"/hijack", "/hijack-old"} {
		require.Equal(t, "yes", post(s, path).header.Get("Hijacked"), path)
	}
	require.Equal(t, http.StatusOK, post(s, "/deadline").status)
	require.Equal(t, http.StatusCreated, post(s, "/early").status)
	require.Len(t, post(s, "/copy").body, 1<<20)
}

// A handler that wrote nothing before its hold was lost gets 503, but one that
// began in any other way than by Write does not.
func TestBegunAnswersStay(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
		"ReadFrom":    func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("x")) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := logs()
			b := leases.NewInProcess()
			s := serve(t, httplease.Dedup(byPath, time.Second, httplease.On(b), httplease.Logger(log))(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					begin(w)
					<-r.Context().Done()
				})))
			require.Less(t, post(s, "/").status, 300)
		})
	}
}

// The process-wide backend is looked up at each request (R14).
func TestR14_TheDefaultBackendIsLookedUpAtEachRequest(t *testing.T) {
	s := serve(t, httplease.Dedup(byPath, time.Minute)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(func() { leases.Configure(nil) })
	leases.Configure(fixed{})
	require.Equal(t, http.StatusConflict, post(s, "/").status)
	leases.Configure(nil)
	require.Equal(t, http.StatusOK, post(s, "/").status)
}
