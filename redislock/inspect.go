package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// Inspect looks for what weakens the promises of locks.
func (c *client) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("%w: no name to probe: %w", driver.ErrUnavailable, err)
	}
	ks, err := c.keysOf("fencelock-doctor-" + id.String())
	if err != nil {
		return nil, err
	}
	probe := ks.all()
	if c.cfg.Quarantine {
		probe = append(probe, c.markerKey())
	}
	in := &inspection{
		conn: c.conn, ttl: ttl, keys: probe, index: c.indexOf(""), prefix: c.cfg.Prefix, channel: c.channel() + "doctor-" + id.String(),
		retention: c.cfg.Retention, quarantine: c.cfg.Quarantine, minReplicas: c.cfg.MinReplicas, replicaLag: c.cfg.ReplicaLag,
	}
	findings, err := in.run(ctx)
	return findings, unavailable(err)
}

// inspection is one Inspect and what it has learned.
type inspection struct {
	conn        Conn
	ttl         time.Duration
	keys        []string // of the probe name, and the marker with a quarantine
	index       string   // a key of the index of names
	prefix      string   // what the name of every key begins with
	channel     string   // one like those the waiters listen on
	retention   time.Duration
	quarantine  bool
	minReplicas int
	replicaLag  time.Duration

	nodes []node
}

// node is what one master says of itself.
type node struct {
	addr   string
	info   map[string]string // nil without the right to ask
	denied error             // why info is nil
	config map[string]setting
}

// setting is one value of CONFIG GET, or why it could not be read.
type setting struct {
	value string
	err   error
}

// settings are the values an inspection reads.
var settings = []string{
	"save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "timeout", "port", "tls-port", "bind",
}

// ask reads INFO and the settings of every master.
func (in *inspection) ask(ctx context.Context) error {
	answers, err := in.conn.Each(ctx, "INFO")
	if err != nil {
		return err
	}
	for _, a := range answers {
		n := node{addr: a.Node, config: map[string]setting{}}
		if a.Err != nil {
			if !refusal(a.Err) {
				return a.Err
			}
			n.denied = a.Err
		} else {
			n.info = parseInfo(a.Text)
		}
		in.nodes = append(in.nodes, n)
	}
	for _, name := range settings {
		answers, err := in.conn.Each(ctx, "CONFIG", "GET", name)
		if err != nil {
			return err
		}
		if len(answers) != len(in.nodes) {
			return fmt.Errorf("%w: the masters changed during the inspection; try again", driver.ErrUnavailable)
		}
		for i, a := range answers {
			in.nodes[i].config[name] = parseSetting(a)
		}
	}
	return nil
}

// parseInfo reads lines of "name:value". Under RESP3 the text may say first that
// it is text.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// errNoSetting: some servers lack some settings, and managed ones hide them.
var errNoSetting = errors.New("the server has no such setting")

func parseSetting(a Answer) setting {
	_, value, ok := strings.Cut(a.Text, "\n")
	switch {
	case a.Err != nil:
		return setting{err: a.Err}
	case !ok:
		return setting{err: errNoSetting}
	}
	return setting{value: strings.TrimRight(value, "\r\n")}
}

// refusal reports whether err is the server's own answer, such as "NOPERM this
// user has no ...", and not a failure to reach it.
func refusal(err error) bool {
	_, ok := serverError(err)
	return ok
}

// noRight is the finding about what the user may not look at.
func noRight(check string, err error, grant string) driver.Finding {
	words, ok := serverError(err)
	if !ok {
		words = err.Error()
	}
	return driver.Finding{
		Check: check, Severity: driver.Unknown, Observed: words,
		Impact: "this could not be checked",
		Fix:    "let the user run it for an inspection: ACL SETUSER name " + grant,
	}
}

// worst makes one check on every master and returns the worst finding.
func (in *inspection) worst(check func(node) driver.Finding) driver.Finding {
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
