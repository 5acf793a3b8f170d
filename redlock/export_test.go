package redlock

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// SetClock replaces the clock that a client's token proposals come from.
func (e *Engine) SetClock(now func() time.Time) { e.clock = now }

// Run runs one script on the first node and returns the words of the answer.
func (e *Engine) Run(ctx context.Context, script, name string, args ...string) ([]string, error) {
	s := map[string]*redislock.Script{
		"ask": askScript, "raise": raiseScript, "renew": renewScript, "repair": repairScript, "release": releaseScript,
	}[script]
	r := e.nodes[0].conn.Eval(ctx, []redislock.Call{e.call(s, name, args...)})[0]
	return strings.Fields(r.Text), r.Err
}

// The scripts that a test waits for.
var (
	ReleaseScript = releaseScript
	LeaveScript   = leaveScript
)

// Agree makes one holder of what nodes show.
var Agree = agree
