package redislease_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/redislease"
)

const password = "hunter2-correct-horse"

// startUser starts a server and returns clients of its default user and of one
// that may do what rules allow.
func startUser(t *testing.T, rules ...string) (admin, user *redis.Client) {
	t.Helper()
	port := freePort(t)
	startServer(t, t.TempDir(), port)
	admin = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	t.Cleanup(func() { admin.Close() })
	setUser(t, admin, append([]string{"reset", "on", ">" + password}, rules...)...)
	user = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, Username: "app", Password: password})
	t.Cleanup(func() { user.Close() })
	return admin, user
}

func setUser(t *testing.T, admin *redis.Client, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app"}
	for _, r := range rules {
		args = append(args, r)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
}

// documentedACL is the rules in the package's comment.
func documentedACL(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(doc), "As an ACL:\n")
	require.True(t, ok)
	rules, _, ok := strings.Cut(after, "// and what")
	require.True(t, ok)
	return regexp.MustCompile(`[~&+][^\s]+`).FindAllString(rules, -1)
}

// TestDocumentedACLSuffices for everything, wake-ups included.
func TestDocumentedACLSuffices(t *testing.T) {
	t.Parallel() // mostly waits
	_, user := startUser(t, documentedACL(t)...)
	b := redislease.New(user)
	cl := claim("x", 0, "a")
	h := hold(cl, acquire(t, b, cl))
	called := inLine(t, b, cl, "ticket")
	released(t, b, h, true)
	await(t, called, "the turn")
	leasetest.Run(t, func(*testing.T) leases.Backend { return redislease.New(user) })
}

// TestR6_DeniedCommands: what the server denies is an error with its text; it
// never passes for busy, the other kind or a loss.
func TestR6_DeniedCommands(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			for _, rules := range [][]string{
				{"-get"}, {"-set"}, {"-time"}, {"-del", "-zrem"}, {"-pexpire"}, {"-exists"},
				{"-zrangebyscore"}, {"-zmscore"}, {"-zadd"}, {"-evalsha", "-eval"},
				{"resetkeys", "~other:*"},
			} {
				admin, user := startUser(t, documentedACL(t)...)
				free := redislease.New(admin)
				cl := claim("x", slots, "a")
				h := hold(cl, acquire(t, free, cl))
				setUser(t, admin, rules...)
				b := redislease.New(user)
				denied := 0
				check := func(ok bool, err error) {
					t.Helper()
					if err == nil {
						require.True(t, ok, "%q", rules)
						return
					}
					denied++
					require.False(t, ok)
					require.NotErrorIs(t, err, leases.ErrKind)
					require.NotErrorIs(t, err, leases.ErrNotAcquired)
					require.ErrorContains(t, err, "redis: ")
					require.Regexp(t, "permission|can't run|can't access", err.Error())
					require.NotContains(t, err.Error(), password)
				}
				ok, err := b.Refresh(t.Context(), h, 2*time.Minute)
				check(ok, err)
				g, err := b.Acquire(t.Context(), cl)
				check(g.Held, err)
				h.Fence = 0 // an acquire that failed may have been applied
				ok, err = b.Release(t.Context(), h)
				check(ok, err)
				leaseOnly, semaphoreOnly := rules[0] == "-get", strings.HasPrefix(rules[0], "-z")
				if slots == 0 && !semaphoreOnly || slots > 0 && !leaseOnly {
					require.Positive(t, denied, "%q", rules)
				}
			}
		})
	}
}

// TestReleaseWithoutPublish: the call of the first in line is a hint, and the
// release does not depend on it.
func TestReleaseWithoutPublish(t *testing.T) {
	for _, rule := range []string{"-publish", "resetchannels"} {
		for kind, slots := range kinds {
			t.Run(rule+" "+kind, func(t *testing.T) {
				_, user := startUser(t, append(documentedACL(t), rule)...)
				b := redislease.New(user)
				cl := claim("x", slots, "a")
				h := hold(cl, acquire(t, b, cl))
				if slots > 0 { // the other of its two slots
					other := cl
					other.Owner = "other"
					acquire(t, b, other)
				}
				waits(t, b, cl, "ticket")
				released(t, b, h, true)
				released(t, b, h, false)
				cl.Owner = "b"
				g, err := b.AcquireInTurn(t.Context(), cl, "ticket", false)
				require.NoError(t, err)
				require.True(t, g.Held, "it is its turn all the same")
			})
		}
	}
}

// TestCase24_OutOfMemory: a full server that evicts nothing refuses to acquire,
// which is an error and leaves nothing; who holds can refresh and release.
func TestCase24_OutOfMemory(t *testing.T) {
	for kind, slots := range kinds {
		t.Run(kind, func(t *testing.T) {
			port := freePort(t)
			startServer(t, t.TempDir(), port, "--maxmemory-policy", "noeviction")
			c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
			t.Cleanup(func() { c.Close() })
			b := redislease.New(c)
			cl := claim("x", slots, "a")
			h := hold(cl, acquire(t, b, cl))
			require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
			for _, name := range []string{"x", "y"} {
				g, err := b.Acquire(t.Context(), claim(name, slots, "a"))
				require.ErrorContains(t, err, "redis: ")
				require.ErrorContains(t, err, "OOM")
				require.Zero(t, g)
			}
			require.Zero(t, c.Exists(t.Context(), "sm:{y}", "sm:{y}:fence").Val())
			refreshed(t, b, h, true)
			released(t, b, h, true)
			require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
			require.Greater(t, acquire(t, b, cl).Fence, h.Fence)
		})
	}
}

// TestR6_ErrorsSayWhat: and hold no password.
func TestR6_ErrorsSayWhat(t *testing.T) {
	t.Parallel() // mostly waits
	primary, replica, guarded, closed := freePort(t), freePort(t), freePort(t), freePort(t)
	startServer(t, t.TempDir(), primary)
	startServer(t, t.TempDir(), replica, "--replicaof", "127.0.0.1 "+primary)
	startServer(t, t.TempDir(), guarded, "--requirepass", password)
	for want, o := range map[string]*redis.Options{
		"READONLY":           {Addr: "127.0.0.1:" + replica},
		"NOAUTH":             {Addr: "127.0.0.1:" + guarded},
		"WRONGPASS":          {Addr: "127.0.0.1:" + guarded, Password: "wrong-" + password},
		"connection refused": {Addr: "127.0.0.1:" + closed, Password: password},
	} {
		for kind, slots := range kinds {
			t.Run(want+" "+kind, func(t *testing.T) {
				c := redis.NewClient(o)
				t.Cleanup(func() { c.Close() })
				b := redislease.New(c, redislease.Timeout(hang))
				g, err := b.Acquire(t.Context(), claim("x", slots, "a"))
				require.Regexp(t, "^redis: .*"+want, err.Error())
				require.NotContains(t, err.Error(), password)
				require.NotErrorIs(t, err, leases.ErrNotAcquired)
				require.NotErrorIs(t, err, leases.ErrKind)
				require.Zero(t, g)
				h := leases.Lease("x", time.Minute, leases.On(b))
				require.ErrorContains(t, h.Acquire(t.Context()), `leases: acquire "x": redis: `)
			})
		}
	}
}
