package httplease

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// answer knows whether the handler has begun to answer: a hold that was lost
// before that must not look like an empty 200. What else the server's writer
// can do is reached through it, by http.ResponseController and by the
// assertions to Flusher, Hijacker and ReaderFrom that older handlers make.
type answer struct {
	http.ResponseWriter
	begun bool
}

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // the other 1xx come before the answer
		a.begun = true
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(p)
}

func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	a.begun = true
	return io.Copy(a.ResponseWriter, src)
}

func (a *answer) Flush() { a.FlushError() }

func (a *answer) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	a.begun = a.begun || err == nil
	return err
}

func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.begun = a.begun || err == nil
	return conn, rw, err
}
