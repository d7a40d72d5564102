package httplease

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// The types of the problem documents that a client may want to tell apart.
// The others have type about:blank.
const (
	// TypeBusy: another request with the same key runs, or ran less than a
	// TTL ago (HoldThroughTTL). This one did not run.
	TypeBusy = "https://pkg.go.dev/github.com/simple-module/core/middleware/http#TypeBusy"

	// TypeLost: the request ran, but its hold was lost before it had answered
	// anything, and it was told to stop. It may have done some of its work.
	TypeLost = "https://pkg.go.dev/github.com/simple-module/core/middleware/http#TypeLost"
)

// problem is a problem document as of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

var (
	busy = problem{TypeBusy, "Already running", http.StatusConflict,
		"The same request is being handled, or was a short while ago. Try again later."}
	lost = problem{TypeLost, "Stopped", http.StatusServiceUnavailable,
		"The request took too long and was stopped before it had an answer. Some of its work may be done."}
	badKey = problem{"about:blank", "Bad Request", http.StatusBadRequest,
		"The request does not say what it is for."}
	storeFailed = problem{"about:blank", "Service Unavailable", http.StatusServiceUnavailable,
		"It could not be found out whether the same request is being handled. Nothing was done."}
	misused = problem{"about:blank", "Internal Server Error", http.StatusInternalServerError,
		"The server is not set up to handle this request. Nothing was done."}
)

func (p problem) write(w http.ResponseWriter, r *http.Request) {
	body, _ := json.Marshal(p) // strings and a number: it can't fail
	header := w.Header()
	for _, name := range []string{"Content-Encoding", "ETag", "Last-Modified"} { // of an answer that a handler began
		header.Del(name)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}
