package redlock

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// SetClock replaces the clock that a client's token proposals come from.
func (e *Engine) SetClock(now func() time.Time) { e.acquirer.proposer.clock = now }

// Edit changes the texts of the engine's scripts, before it is used.
func (e *Engine) Edit(edit func(text string) string) { e.lua = e.cfg.scripts(len(e.set.nodes), edit) }

// Run runs one script on the first node. more are keys beside the lock's.
func (e *Engine) Run(ctx context.Context, script, name string, more []string, args ...string) (string, error) {
	c := e.call(map[string]*redisconn.Script{
		"ask": e.lua.ask, "raise": e.lua.raise, "renew": e.lua.renew, "repair": e.lua.repair, "release": e.lua.release,
		"leave": e.lua.leave, "status": e.lua.status, "init": e.lua.init,
	}[script], name, args...)
	c.Keys = append(c.Keys, more...)
	r := e.set.nodes[0].conn.Eval(ctx, []redisconn.Call{c})[0]
	return r.Text, r.Err
}

// BePatient makes limits longer that the machine may be too slow for. It is called before
// any engine is made.
func BePatient() {
	for _, limit := range []*time.Duration{&meetLimit, &callLimit, &reviveLimit, &listLimit} {
		*limit *= 10
	}
}

// Kind says which script it is.
func Kind(s *redisconn.Script) string {
	for kind, text := range map[string]string{"ask": askLua, "raise": raiseLua, "renew": renewLua, "repair": repairLua, "release": releaseLua, "leave": leaveLua} {
		if strings.HasSuffix(s.Source(), text) {
			return kind
		}
	}
	return "another"
}

// Agree makes one holder of what nodes show.
var Agree = agree

// Idle makes it so much longer ago that the nodes' clocks were last seen.
func (e *Engine) Idle(d time.Duration) {
	for _, n := range e.set.nodes {
		if s := n.clock.last.Load(); s != nil {
			n.clock.last.Store(&sample{s.clock - d.Microseconds(), s.sent.Add(-d)})
		}
	}
}

// Restore asks a node to repair a lock of whose lease so much is left.
func (e *Engine) Restore(node int, l driver.Lease, left time.Duration) {
	r := &renewals{renewer: e.renewer, sent: time.Now().Add(left - (l.TTL - drift(l.TTL)))}
	r.restore(e.set.nodes[node], l)
}

// Asked tracks the calls to one node.
type Asked struct{ asked }

func (a *Asked) Begin() { a.begin() }
func (a *Asked) End()   { a.end() }
func (a *Asked) Wait()  { a.wait() }
