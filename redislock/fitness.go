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

// fitFor is how long a server that was found fit to keep locks is believed to be so,
// while nothing points to another one.
const fitFor = 30 * time.Second

// fitness is whether the server was found fit to keep locks: it does not evict them,
// and with a quarantine a master that is cut off stops.
type fitness struct {
	*client
	looking chan struct{} // holds one while somebody looks

	mu    sync.Mutex // guards all below
	since time.Time  // when it was last found fit; zero if that is not known
}

// known says how long ago the server was found fit; ok is false if it was not, or if
// there may be another one by now.
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

// forget makes the next acquire look again: after an error of the connection, or when
// the subscription was broken, another server may answer.
func (f *fitness) forget() { f.set(time.Time{}) }

// fit returns an error unless the server is fit to keep locks. It looks before the
// first acquire and after each error of the connection, and now and then in the background.
func (f *fitness) fit(ctx context.Context) error {
	if f.cfg.AllowEviction && !f.cfg.Quarantine {
		return nil
	}
	age, ok := f.known()
	switch {
	case ok && age < fitFor:
		return nil
	case ok:
		f.set(time.Now())   // one looks, the others go on
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

// examine asks every master whether it may be used.
func (f *fitness) examine(ctx context.Context) error {
	if !f.cfg.AllowEviction {
		answers, err := f.ask(ctx, "INFO", "memory")
		if err != nil {
			return unavailable(err)
		}
		for _, a := range answers {
			// Whoever may not ask is served all the same.
			if policy := evicts(a.Text); a.Err == nil && policy != "" {
				return fmt.Errorf("%w: the server evicts keys when memory is full (maxmemory-policy %s), and locks with them; set noeviction, or allow eviction", driver.ErrConfig, policy)
			}
		}
	}
	if !f.cfg.Quarantine {
		return nil
	}
	return f.examineReplicas(ctx)
}

// examineReplicas refuses a master that would go on renewing leases when it is cut
// off from its replicas, one of which is promoted.
func (f *fitness) examineReplicas(ctx context.Context) error {
	answers, err := f.ask(ctx, "INFO", "replication")
	if err != nil {
		return unavailable(err)
	}
	alone := !slices.ContainsFunc(answers, func(a redisconn.Answer) bool {
		count := redisfmt.ParseInfo(a.Text)["connected_slaves"]
		return a.Err == nil && count != "" && count != "0"
	})
	if alone { // a script that may not ask says so by itself
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
		return fmt.Errorf("%w: with a quarantine a master with replicas must stop when it is cut off from them: %s", driver.ErrConfig, why)
	}
	return nil
}

// cutOff says what is wrong with the settings of a master that has replicas, for
// clients that count on a lag; empty if nothing is.
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

// ask sends a command to every master until each has answered, for no longer than
// RetryTimeout. Of a Cluster one that answers is enough: a master that is silent grants
// nothing, and the names of the others do not wait for it.
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

// silence returns why another try may tell more, if too few have answered.
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

// settingOf returns a setting of the masters: of the first.
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
		return 0, fmt.Errorf("%w: with a quarantine and replicas %s must be known: ACL SETUSER name +config|get: %w", driver.ErrConfig, name, s.Err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(s.Value))
	if err != nil {
		return 0, malformed(s.Value)
	}
	return n, nil
}

// evicts returns the eviction policy of INFO memory, empty if nothing is evicted.
func evicts(info string) string {
	fields := redisfmt.ParseInfo(info)
	policy := fields["maxmemory_policy"]
	if policy == "noeviction" || fields["maxmemory"] == "0" {
		return ""
	}
	return policy
}
