package redislock

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
)

// check returns what is wrong with the engine, the request or the server.
func (e *Engine) check(ctx context.Context, req driver.Request) (keys, error) {
	if err := req.Check(e.Traits()); err != nil {
		return keys{}, err
	}
	if e.cfg.Quarantine && e.conn.Cluster() {
		return keys{}, fmt.Errorf("%w: the quarantine is not available on a Redis Cluster; switch it off", driver.ErrUnsupported)
	}
	if e.closed.Err() != nil {
		return keys{}, unavailable(errClosed)
	}
	ks, err := e.keysOf(req.Name)
	if err == nil && e.conn.Cluster() {
		e.knowParts()
	}
	if err != nil {
		return ks, err
	}
	return ks, e.fit(ctx)
}

// ask sends a command to every master until each has answered, for no longer than
// RetryTimeout.
func (e *Engine) ask(ctx context.Context, args ...string) ([]Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RetryTimeout)
	defer cancel()
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		answers, err := e.conn.Each(ctx, args...)
		for _, a := range answers {
			if err == nil && a.Err != nil && passing(a.Err) {
				err = a.Err
			}
		}
		why = cause(why, err)
		if err == nil || !passing(err) || ctx.Err() != nil {
			return answers, why
		}
	}
}

// evicts returns the eviction policy of INFO memory, empty if nothing is evicted.
func evicts(info string) string {
	fields := parseInfo(info)
	policy := fields["maxmemory_policy"]
	if policy == "noeviction" || fields["maxmemory"] == "0" {
		return ""
	}
	return policy
}
