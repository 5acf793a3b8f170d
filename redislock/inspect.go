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

// Inspect checks the servers' settings and the user's permissions for anything that weakens the
// guarantees of locks with the given TTL. It acquires locks under probe names and then removes
// their keys; keys that it cannot remove expire within two minutes. Anything the user may not read
// is reported as a finding. Inspect returns an error if a server cannot be queried.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	servers, err := redisinspect.Ask(ctx, e.conn)
	if err != nil {
		return nil, unavailable(err)
	}
	cfg := e.cfg
	cfg.Retention = 2 * inspect.LeaseTTL(ttl, e.Traits())
	probe := newEngine(e.conn, &cfg)
	probe.queue.index.Write = nameindex.Nothing // keep the probe names out of the index
	t := inspect.Trial{Engine: probe, Name: inspect.NewName(), TTL: ttl, Denied: redisconn.Denied, Grant: e.grant(), Lacks: redisconn.Lacks, Supply: redisinspect.Supply}
	findings, err := t.Run(ctx)
	_ = probe.Close() // it holds nothing
	e.sweep(context.WithoutCancel(ctx), t.Names())
	if err != nil {
		return nil, unavailable(err)
	}
	if lock, err := e.lockKey(t.Name + "-command"); err == nil {
		findings = append(findings, redisinspect.Commands(ctx, e.conn, scriptRights, lock, e.base()+"doctor", e.grant())...)
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

// sweep deletes the keys of probe names. If that fails, they expire.
func (c *client) sweep(ctx context.Context, names []string) {
	var calls []redisconn.Call
	for _, name := range names {
		lock, err := c.lockKey(name)
		if err != nil {
			continue
		}
		keys := []string{lock}
		for _, beside := range []string{"fence:", "queue:", "closed:", "limit:"} {
			keys = append(keys, c.base()+beside+tagOf(lock))
		}
		calls = append(calls, redisconn.Call{Script: deleteScript, Keys: keys})
	}
	c.conn.Eval(redisconn.WithDeadline(ctx, closeLimit), calls)
}

// scriptRights are the commands that the engine runs, as an ACL rule.
const scriptRights = "+eval +evalsha +get +mget +set +del +exists +pttl +pexpire +pexpireat +zadd +zrem +zrange +zrevrange +zrangebyscore +zrevrangebyscore" +
	" +zscore +zscan +zrank +time +publish +subscribe +unsubscribe +ping +info +scan +wait"

// grant returns the command that gives a user the permissions that the engine needs.
func (s keyspace) grant() string {
	rule := "ACL SETUSER name &" + s.prefix + "fencelock:* ~" + s.prefix + "lock:* ~" + s.prefix + "fencelock:* ~" + s.prefix + recordPrefix + "*"
	if s.cluster() {
		rule += " +cluster +asking"
	}
	return rule + " " + scriptRights
}
