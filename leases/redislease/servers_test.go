package redislease_test

import (
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func freePort(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port < 55000 { // a Cluster's second port is 10000 higher
			return strconv.Itoa(port)
		}
	}
}

// startServer starts a redis-server of the test's own and waits until it
// answers. It is killed by stop, or when the test ends.
func startServer(t *testing.T, dir, port string, args ...string) (stop func()) {
	t.Helper()
	return start(t, port, append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"}, args...)...)
}

func start(t *testing.T, port string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command("redis-server", args...)
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(stop)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer c.Close()
	require.Eventually(t, func() bool {
		err := c.Ping(t.Context()).Err()
		return err == nil || redis.HasErrorPrefix(err, "NOAUTH")
	}, hang, 10*time.Millisecond)
	return stop
}

// proxy passes connections on to a server, and can lose a reply: the request
// arrives, the answer does not, and the connection breaks.
type proxy struct {
	addr string

	mu        sync.Mutex
	drop      bool
	meanwhile func()
	n         int
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p := &proxy{addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go func() { io.Copy(upstream, client); upstream.Close() }()
			go p.replies(client, upstream)
		}
	}()
	return p
}

func (p *proxy) replies(client, upstream net.Conn) {
	defer client.Close()
	defer upstream.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := upstream.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop, meanwhile := p.drop, p.meanwhile
		if drop {
			p.drop = false
			p.n++
		}
		p.mu.Unlock()
		if drop {
			meanwhile()
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// dropNextReply loses the next reply. The request is sent again only after
// meanwhile.
func (p *proxy) dropNextReply(meanwhile func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop, p.meanwhile = true, meanwhile
}

func (p *proxy) dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}
