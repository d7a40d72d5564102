package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases/redislease"
)

const redisForms = "redis://[user:password@]host:port[/db], rediss://…, unix://[user:password@]/path/to.sock; for a Cluster with ?addr=host:port&addr=…, for Sentinel with ?master_name=NAME&addr=…"

// redisOptions has one field that is not nil.
type redisOptions struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	failover *redis.FailoverOptions
}

func redisTarget(raw, prefix string) (target, error) {
	if strings.ContainsAny(prefix, "{}") {
		return target{}, errors.New("SM_REDIS_PREFIX must be without { and }")
	}
	o, err := parseRedisURL(raw)
	if err != nil {
		return target{}, err
	}
	return target{
		kind: "redis", where: "Redis at " + o.where(), variable: "SM_REDIS_URL", secrets: secretsOf(raw),
		open: func(ctx context.Context) (*Runtime, error) {
			c, err := openRedis(ctx, o)
			if err != nil {
				return nil, err
			}
			var opts []redislease.Option
			if prefix != "" {
				opts = append(opts, redislease.Prefix(prefix))
			}
			return &Runtime{redis: c, backend: redislease.New(c, opts...)}, nil
		},
	}, nil
}

func parseRedisURL(raw string) (o redisOptions, err error) {
	u, err := url.Parse(raw)
	_, _, ok := split(raw)
	if !ok || err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || u.Host+u.Path == "" {
		return o, fmt.Errorf("SM_REDIS_URL must be one of: %s (%s)", redisForms, encodeHint)
	}
	// What go-redis would ignore, or panic at, or show.
	query := u.Query()
	refuse := func(when bool, format string, args ...any) {
		if when && err == nil {
			err = fmt.Errorf("SM_REDIS_URL: "+format, args...)
		}
	}
	sentinel, cluster := query.Has("master_name"), query.Has("addr")
	refuse(u.Scheme == "unix" && (sentinel || cluster), "a Cluster or Sentinels are reached by redis:// or rediss://")
	refuse(sentinel && query.Get("master_name") == "", "master_name is empty: it is the name by which the Sentinels know the master")
	for _, name := range []string{"replica_only", "route_randomly", "route_by_latency"} {
		refuse(sentinel && query.Has(name), "%s can't be used: leases are kept by the master", name)
	}
	refuse(!sentinel && cluster && strings.Trim(u.Path, "/0") != "", "a Cluster has no other database than 0")
	for _, addr := range query["addr"] {
		refuse(strings.Contains(addr, "@"), "addr must be host:port; user and password stand before the first host, for all servers")
	}
	if err != nil {
		return o, err
	}
	switch {
	case sentinel:
		o.failover, err = redis.ParseFailoverURL(raw)
	case cluster:
		o.cluster, err = redis.ParseClusterURL(raw)
	default:
		o.single, err = redis.ParseURL(raw)
	}
	if err != nil {
		return redisOptions{}, fmt.Errorf("SM_REDIS_URL: %s; it must be one of: %s", secretsOf(raw).hide(strings.TrimPrefix(err.Error(), "redis: ")), redisForms)
	}
	return o, nil
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

// openRedis connects and asks what server it is. One of a Cluster gets a
// client for the whole of it.
func openRedis(ctx context.Context, o redisOptions) (redis.UniversalClient, error) {
	c := o.client()
	// A read ends with its deadline, but not when ctx is cancelled.
	stop := context.AfterFunc(ctx, func() { c.Close() })
	clustered, err := inspect(ctx, c, o.single)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil || clustered {
		c.Close()
	}
	switch {
	case err != nil:
		return nil, err
	case clustered:
		return openRedis(ctx, redisOptions{cluster: clusterOf(o.single)})
	}
	return c, nil
}

// inspect returns an error for a server that can't keep leases. clustered says
// that single, which is nil for the other clients, is one of a Cluster.
func inspect(ctx context.Context, c redis.UniversalClient, single *redis.Options) (clustered bool, err error) {
	if err := c.Ping(ctx).Err(); err != nil || single == nil {
		return false, err
	}
	// HELLO is allowed to every user. A proxy may not know it: then what was
	// set is taken as it is.
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	_ = c.Process(ctx, hello)
	server := hello.Val()
	version := fmt.Sprint(server["version"])
	switch {
	case server["mode"] == "cluster" && single.Network == "unix":
		return false, failuref(nil, "it is one of a Cluster: set SM_REDIS_URL to its host and port")
	case server["mode"] == "cluster":
		return true, nil
	case server["mode"] == "sentinel":
		return false, failuref(nil, "it is a Sentinel: add ?master_name=NAME to SM_REDIS_URL")
	case server["role"] == "replica":
		return false, failuref(nil, "it is a read-only replica: set SM_REDIS_URL to its master, or to Sentinels")
	case older(version, 6, 2):
		return false, failuref(nil, "it has version %s; 6.2 or newer is needed", version)
	}
	return false, nil
}

// clusterOf are the options for the Cluster that a server belongs to.
func clusterOf(o *redis.Options) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		ClientName: o.ClientName, Protocol: o.Protocol,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		MaxConcurrentDials: o.MaxConcurrentDials, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		PipelinePoolSize: o.PipelinePoolSize, PipelineReadBufferSize: o.PipelineReadBufferSize, PipelineWriteBufferSize: o.PipelineWriteBufferSize,
	}
}

func older(version string, major, minor int) bool {
	var gotMajor, gotMinor int
	n, _ := fmt.Sscanf(version, "%d.%d", &gotMajor, &gotMinor)
	return n == 2 && (gotMajor < major || gotMajor == major && gotMinor < minor)
}
