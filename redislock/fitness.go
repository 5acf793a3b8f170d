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
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/redisinspect"
)

// fitFor is how long a successful check of the server is valid, if nothing suggests that another
// server has taken over.
const fitFor = 30 * time.Second

// fitness tracks whether the server is suitable for locks: it does not evict keys and, with
// Quarantine, a master stops accepting writes when it is cut off.
type fitness struct {
	*client
	looking chan struct{} // holds one item during a check

	mu    sync.Mutex // guards all below
	since time.Time  // time of the last successful check; zero if unknown
}

// known returns the age of the last successful check. ok is false if there was none, or if another
// server may have taken over since.
func (f *fitness) known() (age time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.since), !f.since.IsZero()
}

func (f *fitness) set(since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = since
}

// forget makes the next acquire check again. After a connection error or a lost subscription
// another server may answer.
func (f *fitness) forget() { f.set(time.Time{}) }

// fit returns an error unless the server is suitable. It checks before the first acquire and after
// each connection error, and every fitFor in the background.
func (f *fitness) fit(ctx context.Context) error {
	if f.cfg.AllowEviction && !f.cfg.Quarantine {
		return nil
	}
	age, ok := f.known()
	switch {
	case ok && age < fitFor:
		return nil
	case ok:
		f.set(time.Now())   // this goroutine starts the check; the others go on
		f.tasks.Go(func() { // ends when the masters have answered, with RetryTimeout, or with Close
			if f.examine(f.closed) != nil {
				f.forget()
			}
		})
		return nil
	}
	select {
	case f.looking <- struct{}{}:
	case <-ctx.Done():
		return unavailable(f.unreached(ctx.Err()))
	}
	defer func() { <-f.looking }()
	if _, ok := f.known(); ok {
		return nil
	}
	now := time.Now()
	err := f.examine(ctx)
	if err == nil {
		f.set(now)
	}
	return err
}

// examine checks the settings of every master.
func (f *fitness) examine(ctx context.Context) error {
	if !f.cfg.AllowEviction {
		answers, err := f.ask(ctx, "INFO", "memory")
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
	if !f.cfg.Quarantine {
		return nil
	}
	return f.examineReplicas(ctx)
}

// examineReplicas rejects a master that would keep renewing leases after a partition cut it off
// from its replicas, one of which is promoted.
func (f *fitness) examineReplicas(ctx context.Context) error {
	answers, err := f.ask(ctx, "INFO", "replication")
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
	least, err := f.settingOf(ctx, "min-replicas-to-write")
	if err != nil {
		return err
	}
	lag, err := f.settingOf(ctx, "min-replicas-max-lag")
	if err != nil {
		return err
	}
	if why := cutOff(least, lag, f.cfg.ReplicaLag); why != "" {
		return fmt.Errorf("%w: with quarantine, a master with replicas must stop accepting writes when it is cut off from them: %s", driver.ErrConfig, why)
	}
	return nil
}

// cutOff returns what must be changed in the settings of a master with replicas, for clients that
// assume the lag known. It returns "" if nothing must.
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

// ask sends a command to every master until all have answered, for up to RetryTimeout. On a Cluster
// one answer is enough: an unresponsive master grants nothing, and names on other masters must not
// wait for it.
func (f *fitness) ask(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RetryTimeout)
	defer cancel()
	var why error
	for pause := newBackoff(); ; pause.Wait(ctx) {
		each := ctx
		if f.cluster() {
			each = redisconn.WithDeadline(ctx, f.cfg.RetryTimeout/4)
		}
		answers, err := f.conn.Each(each, args...)
		if err == nil {
			err = f.silence(answers)
		}
		why = cause(why, err)
		if err == nil || !passing(err) || ctx.Err() != nil {
			return answers, why
		}
	}
}

// silence returns an error worth retrying if too few masters have answered.
func (f *fitness) silence(answers []redisconn.Answer) (err error) {
	for _, a := range answers {
		switch {
		case a.Err != nil && passing(a.Err):
			err = orElse(err, a.Err)
		case f.cluster():
			return nil
		}
	}
	return err
}

// settingOf returns a configuration setting of the first master.
func (f *fitness) settingOf(ctx context.Context, name string) (int, error) {
	answers, err := f.ask(ctx, "CONFIG", "GET", name)
	if err != nil {
		return 0, unavailable(err)
	}
	if len(answers) == 0 {
		return 0, unavailable(redisinspect.ErrNoSetting)
	}
	s := redisinspect.ReadSetting(answers[0])
	if s.Err != nil {
		return 0, fmt.Errorf("%w: with quarantine and replicas, the client must read %s; grant it with ACL SETUSER name +config|get: %w", driver.ErrConfig, name, s.Err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(s.Value))
	if err != nil {
		return 0, malformed(s.Value)
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
