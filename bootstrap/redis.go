package bootstrap

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const redisForms = "redis://[user:password@]host:port[/db], rediss://…, unix://[user:password@]/path/to.sock; for a Cluster with ?addr=host:port&addr=…, for Sentinel with ?master_name=NAME&addr=…"

// redisOptions has one field that is not nil.
type redisOptions struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	failover *redis.FailoverOptions
}

// parseRedisURL never puts what it could not parse into an error: it may be a
// part of the password.
func parseRedisURL(raw string) (o redisOptions, err error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Host == "" && u.Path == "") {
		return o, fmt.Errorf("SM_REDIS_URL is not a URL that can be used; it must be one of: %s (special characters in the password must be percent-encoded)", redisForms)
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
	default:
		return o, fmt.Errorf("SM_REDIS_URL has the scheme %q; it must be one of: %s", u.Scheme, redisForms)
	}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		o.failover, err = redis.ParseFailoverURL(raw)
	case query.Has("addr"):
		o.cluster, err = redis.ParseClusterURL(raw)
	default:
		o.single, err = redis.ParseURL(raw)
	}
	if err != nil {
		return o, fmt.Errorf("SM_REDIS_URL: %s; it must be one of: %s", scrub(strings.TrimPrefix(err.Error(), "redis: "), raw), redisForms)
	}
	return o, nil
}

// client makes the client. Its reads end with their ctx's deadline.
func (o redisOptions) client() redis.UniversalClient {
	switch {
	case o.failover != nil:
		o.failover.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o.failover)
	case o.cluster != nil:
		o.cluster.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o.cluster)
	}
	o.single.ContextTimeoutEnabled = true
	return redis.NewClient(o.single)
}

// where is what an error may say of the servers.
func (o redisOptions) where() string {
	switch {
	case o.failover != nil:
		return "the Sentinels " + strings.Join(o.failover.SentinelAddrs, ", ")
	case o.cluster != nil:
		return strings.Join(o.cluster.Addrs, ", ")
	}
	return o.single.Addr
}

// openRedis connects and asks what server it is. One of a Cluster gets a
// client for the whole of it.
func openRedis(ctx context.Context, raw string) (redis.UniversalClient, error) {
	o, err := parseRedisURL(raw)
	if err != nil {
		return nil, err
	}
	c := o.client()
	if err := c.Ping(ctx).Err(); err != nil {
		c.Close()
		return nil, &failure{fmt.Sprintf("Redis at %s can't be used: %s (is it running, and is SM_REDIS_URL right?)", o.where(), scrub(because(ctx, err), raw)), err}
	}
	if o.single == nil {
		return c, nil
	}
	info, err := c.Info(ctx, "server", "replication", "cluster").Result()
	if err != nil {
		return c, nil // it may not be allowed; nothing depends on it
	}
	if clustered(info) {
		c.Close()
		cluster := redisOptions{cluster: &redis.ClusterOptions{
			Addrs: []string{o.single.Addr}, Username: o.single.Username, Password: o.single.Password,
			TLSConfig: o.single.TLSConfig, ClientName: o.single.ClientName,
			DialTimeout: o.single.DialTimeout, ReadTimeout: o.single.ReadTimeout, WriteTimeout: o.single.WriteTimeout,
			PoolSize: o.single.PoolSize,
		}}
		c = cluster.client()
		if err := c.Ping(ctx).Err(); err != nil {
			c.Close()
			return nil, &failure{fmt.Sprintf("the Redis Cluster of %s can't be used: %s", o.where(), scrub(because(ctx, err), raw)), err}
		}
		return c, nil
	}
	if infoField(info, "role") == "slave" {
		c.Close()
		return nil, fmt.Errorf("Redis at %s is a read-only replica: set SM_REDIS_URL to its master", o.where())
	}
	if v := infoField(info, "redis_version"); v != "" && older(v, 6, 2) {
		c.Close()
		return nil, fmt.Errorf("Redis at %s has version %s; 6.2 or newer is needed", o.where(), v)
	}
	return c, nil
}

func clustered(info string) bool { return infoField(info, "cluster_enabled") == "1" }

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}

func older(version string, major, minor int) bool {
	fields := strings.SplitN(version, ".", 3)
	if len(fields) < 2 {
		return false
	}
	gotMajor, err1 := strconv.Atoi(fields[0])
	gotMinor, err2 := strconv.Atoi(fields[1])
	return err1 == nil && err2 == nil && (gotMajor < major || gotMajor == major && gotMinor < minor)
}
