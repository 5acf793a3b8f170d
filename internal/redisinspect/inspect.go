// Package redisinspect looks for what in a Redis, or in the rights of a user, weakens the
// promises of locks. It changes nothing but a probe name, whose keys expire within a second.
package redisinspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Inspection is one look at the masters behind a connection, and what it has learned. It
// is used once.
type Inspection struct {
	Conn        redisconn.Conn
	TTL         time.Duration // of the locks in question
	Keys        []string      // of the probe name, and the marker with a quarantine
	Companions  []string      // what the names of the keys beside a lock's own begin with
	Index       string        // a key of the index of names
	Prefix      string        // what the name of every key begins with
	Channel     string        // one like those the waiters listen on
	Quarantine  bool          // the engine waits out what a server has forgotten
	MinReplicas int           // that the engine waits for
	ReplicaLag  time.Duration // for how long a master that is cut off is reckoned with

	nodes []node
}

// node is what one master says of itself.
type node struct {
	addr   string
	info   map[string]string // nil without the right to ask
	denied error             // why info is nil
	config map[string]Setting
}

// Setting is one value of CONFIG GET, or why it could not be read.
type Setting struct {
	Value string
	Err   error
}

// settings are the values an inspection reads, one at a time: a server that hides one of
// them may tell the others.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag",
}

// ask reads INFO and the settings of every master. What is refused stays unknown; a master
// that does not answer ends the inspection.
func (in *Inspection) ask(ctx context.Context) error {
	answers, err := in.Conn.Each(ctx, "INFO")
	if err != nil {
		return err
	}
	for _, a := range answers {
		n := node{addr: a.Node, config: map[string]Setting{}}
		if a.Err != nil {
			if !refusal(a.Err) {
				return a.Err
			}
			n.denied = a.Err
		} else {
			n.info = redisfmt.ParseInfo(a.Text)
		}
		in.nodes = append(in.nodes, n)
	}
	for _, name := range settings {
		answers, err := in.Conn.Each(ctx, "CONFIG", "GET", name)
		if err != nil {
			return err
		}
		if len(answers) != len(in.nodes) {
			return fmt.Errorf("%w: the masters changed during the inspection; try again", driver.ErrUnavailable)
		}
		for i, a := range answers {
			in.nodes[i].config[name] = ReadSetting(a)
		}
	}
	return nil
}

// ErrNoSetting is for a setting that is not there: some servers lack some settings, and managed ones hide them.
var ErrNoSetting = errors.New("the server has no such setting")

// ReadSetting reads an answer to CONFIG GET of one setting.
func ReadSetting(a redisconn.Answer) Setting {
	_, value, ok := strings.Cut(a.Text, "\n")
	switch {
	case a.Err != nil:
		return Setting{Err: a.Err}
	case !ok:
		return Setting{Err: ErrNoSetting}
	}
	return Setting{Value: strings.TrimRight(value, "\r\n")}
}

// refusal reports whether err is the server's own answer, such as "NOPERM this
// user has no ...", and not a failure to reach it.
func refusal(err error) bool {
	_, ok := redisconn.Refused(err)
	return ok
}

// noRight is the finding about what the user may not look at. It is unknown, and no worse:
// what the locks themselves need is tried apart.
func noRight(check string, err error, grant string) driver.Finding {
	words, ok := redisconn.Refused(err)
	if !ok {
		words = err.Error()
	}
	return driver.Finding{
		Check: check, Severity: driver.Unknown, Observed: words,
		Impact: "this could not be checked",
		Fix:    "let the user run it for an inspection: ACL SETUSER name " + grant,
	}
}

// worst makes one check on every master and returns the worst finding, with where it was
// found: a lock is as good as the master that has it.
func (in *Inspection) worst(check func(node) driver.Finding) driver.Finding {
	findings := make([]driver.Finding, len(in.nodes))
	for i, n := range in.nodes {
		findings[i] = check(n)
		if len(in.nodes) > 1 && findings[i].Severity != driver.Good {
			findings[i].Observed += " on " + n.addr
		}
	}
	worst := slices.MaxFunc(findings, func(a, b driver.Finding) int { return int(a.Severity) - int(b.Severity) })
	if len(in.nodes) > 1 && worst.Severity == driver.Good {
		worst.Observed += fmt.Sprintf(", on %d masters", len(in.nodes))
	}
	return worst
}
