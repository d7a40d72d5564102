package bootstrap_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string { return "127.0.0.1:" + freePort(t) }

// startRedis starts a redis-server, with the lines of configuration besides
// those that keep it private, and waits until it answers.
func startRedis(t *testing.T, sentinel bool, lines ...string) (addr string, stop func()) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	conf := filepath.Join(dir, "redis.conf")
	lines = append([]string{"bind 127.0.0.1", "port " + port, "dir " + dir}, lines...)
	require.NoError(t, os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	args := []string{conf}
	if sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command("redis-server", args...)
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	t.Cleanup(stop)
	addr = "127.0.0.1:" + port
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprint(c, "PING\r\n")
		n, _ := c.Read(make([]byte, 1)) // it may want a password first
		return n == 1
	}, hang, 10*time.Millisecond)
	return addr, stop
}

// server serves each connection with serve, and returns its address and a
// channel that gets a value when the other side has closed one.
func server(t *testing.T, serve func(net.Conn)) (addr string, closed <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	over := make(chan struct{}, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
				io.Copy(io.Discard, c)
				over <- struct{}{}
			}()
		}
	}()
	return l.Addr().String(), over
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) (addr string, closed <-chan struct{}) {
	return server(t, func(net.Conn) {})
}

// tellingRedis answers each command with an error that repeats it, as Redis
// does for one that it does not know.
func tellingRedis(t *testing.T) string {
	addr, _ := server(t, func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "-ERR you said %s\r\n", bytes.ReplaceAll(buf[:n], []byte("\r\n"), []byte(" ")))
		}
	})
	return addr
}

// tellingPostgres refuses the password with an error that repeats it.
func tellingPostgres(t *testing.T) string {
	addr, _ := server(t, func(c net.Conn) {
		b := pgproto3.NewBackend(c, c)
		if _, err := b.ReceiveStartupMessage(); err != nil {
			return
		}
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		b.Flush()
		b.SetAuthType(pgproto3.AuthTypeCleartextPassword)
		m, err := b.Receive()
		if err != nil {
			return
		}
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "you said " + m.(*pgproto3.PasswordMessage).Password})
		b.Flush()
	})
	return addr
}

// redisLog is what go-redis has written to its own log (TestMain).
var redisLog logBuffer

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Printf(_ context.Context, format string, v ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(&b.text, format+"\n", v...)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
