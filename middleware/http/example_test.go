package httplease_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/simple-module/core/leases"
	httplease "github.com/simple-module/core/middleware/http"
)

func ExampleDedup() {
	started, finish := make(chan struct{}), make(chan struct{})
	rebuild := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-finish // r.Context() ends when the lease is lost
		io.WriteString(w, "rebuilt")
	})

	once := httplease.Dedup(func(r *http.Request) (string, error) {
		return "rebuild:" + r.PathValue("index"), nil
	}, time.Minute, httplease.KeepAlive(), httplease.On(leases.NewInProcess()))

	mux := http.NewServeMux()
	mux.Handle("POST /indexes/{index}/rebuild", once(rebuild))
	server := httptest.NewServer(mux)
	defer server.Close()

	click := func() string {
		resp, err := http.Post(server.URL+"/indexes/books/rebuild", "", nil)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		return resp.Status
	}
	first := make(chan string)
	go func() { first <- click() }()
	<-started
	fmt.Println("second click:", click())
	close(finish)
	fmt.Println("first click:", <-first)
	// Output:
	// second click: 409 Conflict
	// first click: 200 OK
}
