package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/redisinspect"
	"github.com/fencelock/fencelock/internal/retry"
)

// checkPeriod is how long a successful check of the server is valid, if nothing suggests that another
// server has taken over.
const checkPeriod = 30 * time.Second

// serverCheck tracks whether the server is suitable for locks: it does not evict keys and, with
// Quarantine, a master stops accepting writes when it is cut off.
type serverCheck struct {
	client *client

	mu       sync.Mutex // guards all below
	since    time.Time  // time of the last successful check; zero if unknown
	doubtful bool       // another server may have taken over since
	check    *checkRun  // in progress; nil if there is none
}

// checkRun is one check of the server, for all calls that need it.
type checkRun struct {
	begun time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// invalidate makes the next acquire check again. After a connection error or a lost subscription
// another server may answer. On a Cluster that check runs in the background: a master that does
// not answer must not delay names on the others.
func (s *serverCheck) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtful = true
	if !s.client.cluster() {
		s.since = time.Time{}
	}
}

// require returns an error unless the server is suitable. It checks before the first acquire and
// after each connection error, and every checkPeriod in the background. Concurrent calls share a check.
// A check that began before the call and fails, or was of a server that another one may have
// followed since, proves nothing about the time since, so another one follows. ctx has a deadline.
func (s *serverCheck) require(ctx context.Context) error {
	if s.client.cfg.AllowEviction && !s.client.cfg.Quarantine {
		return nil
	}
	begun := time.Now()
	c := s.due()
	if c == nil {
		return nil
	}
	timed, cancel := redisconn.Timed(ctx)
	defer cancel()
	for why := error(nil); c != nil; c = s.due() {
		select {
		case <-c.done:
		case <-timed.Done():
			return unavailable(orElse(why, s.client.unreached(timed.Err())))
		}
		if why = c.err; !c.begun.Before(begun) || why != nil && !passing(why) {
			return why
		}
	}
	return nil
}

// due returns the check that a call must wait for, which it starts if there is none, or nil if the
// server is known to be suitable.
func (s *serverCheck) due() *checkRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := !s.since.IsZero()
	if known && !s.doubtful && time.Since(s.since) < checkPeriod {
		return nil
	}
	c := s.check
	if c == nil {
		c = &checkRun{begun: time.Now(), done: make(chan struct{})}
		if s.client.tasks.Go(func() { s.run(c) }) { // ends when the masters have answered, after RetryTimeout, or with Close
			s.check = c
		} else {
			c.err = unavailable(errClosed)
			close(c.done)
		}
	}
	if known {
		return nil
	}
	return c
}

// run makes a check and reports its result.
func (s *serverCheck) run(c *checkRun) {
	s.mu.Lock()
	s.doubtful = false
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.client.closed, s.client.cfg.RetryTimeout)
	defer cancel()
	if c.err = s.examine(ctx); s.client.closed.Err() != nil {
		c.err = unavailable(errClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.check = nil
	switch {
	case c.err == nil && (s.client.cluster() || !s.doubtful):
		s.since = c.begun
	case c.err != nil && (!s.client.cluster() || !passing(c.err)):
		s.since = time.Time{}
	case c.err != nil:
		s.doubtful = true // as it was before the check
	}
	close(c.done)
}

// examine checks the settings of every master.
func (s *serverCheck) examine(ctx context.Context) error {
	if !s.client.cfg.AllowEviction {
		answers, err := s.ask(ctx, "INFO", "memory")
		if err != nil {
			return unavailable(err)
		}
		for _, a := range answers {
			// A user without the permission to run INFO is served nevertheless.
			if policy := evicts(a.Text); a.Err == nil && policy != "" {
				return fmt.Errorf("%w: the server evicts keys, locks included, when its memory is full (maxmemory-policy %s); set maxmemory-policy to noeviction, or allow eviction (AllowEviction, eviction=allow in a URL)", driver.ErrConfig, policy)
			}
		}
	}
	if !s.client.cfg.Quarantine {
		return nil
	}
	return s.examineReplicas(ctx)
}

// examineReplicas rejects a master that would keep renewing leases after a partition cut it off
// from its replicas, one of which is promoted.
func (s *serverCheck) examineReplicas(ctx context.Context) error {
	answers, err := s.ask(ctx, "INFO", "replication")
	if err != nil {
		return unavailable(err)
	}
	alone := !slices.ContainsFunc(answers, func(a redisconn.Answer) bool {
		count := redisfmt.ParseInfo(a.Text)["connected_slaves"]
		return a.Err == nil && count != "" && count != "0"
	})
	if alone { // without the right to run INFO, the script reports that itself
		return nil
	}
	least, err := s.settingOf(ctx, "min-replicas-to-write")
	if err != nil {
		return err
	}
	lag, err := s.settingOf(ctx, "min-replicas-max-lag")
	if err != nil {
		return err
	}
	if why := cutOff(least, lag, s.client.cfg.ReplicaLag); why != "" {
		return fmt.Errorf("%w: with quarantine, a master with replicas must stop accepting writes when it is cut off from them: %s", driver.ErrConfig, why)
	}
	return nil
}

// cutOff returns what must be changed in the settings of a master with replicas, for clients that
// assume the lag known. It returns "" if nothing must be changed.
func cutOff(least, lag int, known time.Duration) string {
	switch {
	case least < 1:
		return "CONFIG SET min-replicas-to-write 1"
	case lag < 1:
		return "CONFIG SET min-replicas-max-lag 10"
	case known < time.Duration(lag)*time.Second:
		return fmt.Sprintf("min-replicas-max-lag is %d s; set the replica lag of every client to that (replica-lag=%ds in a URL)", lag, lag)
	}
	return ""
}

// ask sends a command to every master until all have answered or ctx ends. If there was no answer,
// the next attempt is on new connections. On a Cluster one answer is enough: an unresponsive master
// grants nothing, and names on other masters must not wait for it.
func (s *serverCheck) ask(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	var why error
	attempt := ctx
	for pause := newBackoff(); ; pause.Wait(ctx) {
		each := attempt
		if s.client.cluster() || !redisconn.IsFresh(attempt) {
			each = redisconn.WithDeadline(attempt, s.client.cfg.RetryTimeout/4)
		}
		answers, err := s.client.conn.Each(each, args...)
		if err == nil {
			err = s.tooFew(answers)
		}
		why, attempt = cause(why, err), next(attempt, ctx, err)
		if err == nil || !passing(err) || ctx.Err() != nil {
			return answers, why
		}
	}
}

// tooFew returns an error worth retrying if too few masters have answered.
func (s *serverCheck) tooFew(answers []redisconn.Answer) (err error) {
	for _, a := range answers {
		switch {
		case a.Err != nil && passing(a.Err):
			err = orElse(err, a.Err)
		case s.client.cluster():
			return nil
		}
	}
	return err
}

// settingOf returns a configuration setting of the first master.
func (s *serverCheck) settingOf(ctx context.Context, name string) (int, error) {
	answers, err := s.ask(ctx, "CONFIG", "GET", name)
	if err != nil {
		return 0, unavailable(err)
	}
	if len(answers) == 0 {
		return 0, unavailable(redisinspect.ErrNoSetting)
	}
	setting := redisinspect.ReadSetting(answers[0])
	if setting.Err != nil {
		return 0, fmt.Errorf("%w: with quarantine and replicas, the client must read %s; grant it with ACL SETUSER name +config|get: %w", driver.ErrConfig, name, setting.Err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(setting.Value))
	if err != nil {
		return 0, malformed(setting.Value)
	}
	return n, nil
}

// evicts returns the eviction policy in INFO memory, or "" if nothing is evicted.
func evicts(info string) string {
	fields := redisfmt.ParseInfo(info)
	policy := fields["maxmemory_policy"]
	if policy == "noeviction" || fields["maxmemory"] == "0" {
		return ""
	}
	return policy
}

const (
	extendEvery = 24 * time.Hour
	extendLimit = 2 * time.Second
)

// marker manages the key that records for which server the quarantine has passed.
type marker struct {
	client   *client
	extended retry.Period
}

// extend extends the life of the marker key to MarkerLife, once a day and in the background.
// Otherwise a job that runs once a month would find what looks like a new server.
func (m *marker) extend() {
	if !m.client.cfg.Quarantine || !m.extended.Due(extendEvery) {
		return
	}
	m.client.tasks.Go(func() { // ends when the server has answered, or with extendLimit
		ctx, cancel := context.WithTimeout(context.Background(), extendLimit)
		defer cancel()
		c := redisconn.Call{Script: extendMarkerScript, Keys: []string{m.client.markerKey()}, Args: []string{redisfmt.Millis(m.client.cfg.MarkerLife)}}
		if text, err := m.client.eval(ctx, c); err != nil || text != "ok" {
			m.extended.Again() // retried at the next grant or listing
		}
	})
}

// Init marks the server as new.
func (m *marker) Init(ctx context.Context) error {
	lasts := redisfmt.CeilMillis(m.client.cfg.quarantine())
	life := max(redisfmt.CeilMillis(m.client.cfg.MarkerLife), redisfmt.CeilMillis(m.client.cfg.Retention), 2*lasts)
	_, err := m.client.eval(ctx, redisconn.Call{
		Script: initScript,
		Keys:   []string{m.client.markerKey()},
		Args:   []string{strconv.FormatInt(lasts, 10), strconv.FormatInt(life, 10)},
	})
	return unavailable(err)
}

// Inspect checks the servers' settings and the user's permissions for anything that weakens the
// guarantees of locks with the given TTL. It acquires locks under probe names and then removes
// their keys; keys that it cannot remove expire within two minutes. Anything the user may not read
// is reported as a finding. Inspect returns an error if a server cannot be queried.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	servers, err := redisinspect.Ask(ctx, e.client.conn)
	if err != nil {
		return nil, unavailable(err)
	}
	cfg := e.client.cfg
	cfg.Retention = 2 * inspect.LeaseTTL(ttl, e.Traits())
	probe := newEngine(e.client.conn, &cfg)
	probe.queue.index.Write = nameindex.Nothing // keep the probe names out of the index
	t := inspect.Trial{Engine: probe, Name: inspect.NewName(), TTL: ttl, Denied: redisconn.Denied, Grant: e.client.grant(), Lacks: redisconn.Lacks, Supply: redisinspect.Supply}
	findings, err := t.Run(ctx)
	_ = probe.Close() // it holds nothing
	e.client.sweep(context.WithoutCancel(ctx), t.Names())
	if err != nil {
		return nil, unavailable(err)
	}
	if lock, err := e.client.lockKey(t.Name + "-command"); err == nil {
		findings = append(findings, redisinspect.Commands(ctx, e.client.conn, scriptRights, lock, e.client.base()+"doctor", e.client.grant())...)
	}
	rules := redisinspect.Rules{Quarantine: e.client.cfg.Quarantine, Cluster: e.client.cluster(), MinReplicas: e.client.cfg.MinReplicas}
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
