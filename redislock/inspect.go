package redislock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisinspect"
)

// Inspect looks for what in the servers, or in the rights of the user, weakens
// the promises of locks with the given TTL. It uses an engine on probe names, whose keys
// it removes, or which expire within two minutes. What the user may not look at is a finding; a server that
// cannot be asked is the error.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	servers, err := redisinspect.Ask(ctx, e.conn)
	if err != nil {
		return nil, unavailable(err)
	}
	cfg := e.cfg
	cfg.Retention = 2 * inspect.LeaseTTL(ttl, e.Traits())
	probe := newEngine(e.conn, &cfg)
	probe.queue.index.Write = nameindex.Nothing // nobody need see the probe names
	t := inspect.Trial{Engine: probe, Name: inspect.NewName(), TTL: ttl, Denied: redisconn.Denied, Grant: e.grant()}
	findings, err := t.Run(ctx)
	_ = probe.Close() // it holds nothing
	e.sweep(context.WithoutCancel(ctx), t.Names())
	if err != nil {
		return nil, unavailable(err)
	}
	rules := redisinspect.Rules{Quarantine: e.cfg.Quarantine, Cluster: e.cluster(), MinReplicas: e.cfg.MinReplicas}
	var places []string
	var found [][]driver.Finding
	for _, s := range servers {
		places = append(places, s.Addr)
		found = append(found, rules.Judge(s))
	}
	return append(findings, inspect.Together(places, found)...), nil
}

var deleteScript = redisconn.NewScript("return tostring(redis.call('DEL', unpack(KEYS)))")

// sweep removes the keys of names that nobody has. Where that fails they expire.
func (c *client) sweep(ctx context.Context, names []string) {
	var calls []redisconn.Call
	for _, name := range names {
		lock, err := c.lockKey(name)
		if err != nil {
			continue
		}
		keys := []string{lock}
		for _, beside := range []string{"fence:", "queue:", "sleeps:", "closed:", "limit:"} {
			keys = append(keys, c.base()+beside+tagOf(lock))
		}
		calls = append(calls, redisconn.Call{Script: deleteScript, Keys: keys})
	}
	c.conn.Eval(redisconn.WithDeadline(ctx, closeLimit), calls)
}

// scriptRights are the commands that the engine runs, as an ACL rule.
const scriptRights = "+eval +evalsha +get +mget +set +del +exists +pttl +pexpire +pexpireat +zadd +zrem +zrange +zrevrange +zrangebyscore +zrevrangebyscore" +
	" +zscore +zscan +zrank +time +publish +subscribe +unsubscribe +ping +info +scan +wait"

// grant is the command that gives a user the rights that the engine needs.
func (s keyspace) grant() string {
	rule := "ACL SETUSER name &" + s.prefix + "fencelock:* ~" + s.prefix + "lock:* ~" + s.prefix + "fencelock:* ~" + s.prefix + recordPrefix + "*"
	if s.cluster() {
		rule += " +cluster +asking"
	}
	return rule + " " + scriptRights
}
