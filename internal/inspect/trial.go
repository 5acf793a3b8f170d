package inspect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Trial uses an engine like a program does, on probe names. If an operation fails on these, because
// of a missing permission or otherwise, it would fail on other names too.
type Trial struct {
	Engine driver.Engine
	Name   string           // prefix of the probe names; see NewName
	TTL    time.Duration    // TTL of the locks to be used later
	Denied func(error) bool // reports whether an error means a missing permission
	Grant  string           // how to grant all permissions; the fix if a part fails
	Lacks  func(error) bool // optional: reports whether the server lacks what an error names, so that Grant does not help
	Supply string           // the fix then
}

// NewName returns a random prefix for the probe names of one trial, so that concurrent trials do
// not conflict.
func NewName() string { return "fencelock-doctor-" + strings.ToLower(rand.Text()) }

const (
	lockLimit  = 10 * time.Second // for the probe lock, and for all parts together
	partLimit  = 4 * time.Second  // for one part
	longestTTL = 5 * time.Second  // how long a lock remains that cannot be released
	renewals   = 10               // number of measured renewals
	recordLife = 5 * time.Second  // how long the record of the trial exists
)

// A part uses one feature of the engine. It does nothing if the engine does not have it.
type part struct {
	name     string
	needs    string          // the verbs and recipes that use it, in parentheses; "" if locks do
	severity driver.Severity // if the part fails
	try      func(Trial, context.Context, driver.Request) error
}

// Parts that are for people are only a warning.
var parts = []part{
	{"waiting", "", driver.Broken, Trial.wait},
	{"sharing", "", driver.Broken, Trial.share},
	{"minimum-hold", "", driver.Broken, Trial.minHold},
	{"break", "", driver.Warning, Trial.end},
	{"list", "", driver.Warning, Trial.list},
	{"records", " (run --tick, once, jobs, ticks and jobs of programs)", driver.Broken, Trial.record},
	{"rates", " (limit, rates of programs)", driver.Broken, Trial.rate},
}

// Names returns the names that the trial uses, for locks, records and rates.
func (t Trial) Names() []string {
	names := []string{t.Name}
	for _, p := range parts {
		names = append(names, t.request(p.name).Name)
	}
	return names
}

// LeaseTTL returns the TTL of the probe locks, for later locks with this TTL.
func LeaseTTL(ttl time.Duration, traits driver.Traits) time.Duration {
	ttl = max(min(ttl, longestTTL), traits.MinTTL)
	if traits.MaxTTL > 0 {
		ttl = min(ttl, traits.MaxTTL)
	}
	return ttl
}

// request returns the request of a part, or of the probe lock if part is empty.
func (t Trial) request(part string) driver.Request {
	name := t.Name
	if part != "" {
		name += "-" + part
	}
	return driver.Request{Name: name, TTL: LeaseTTL(t.TTL, t.Engine.Traits()), Identity: driver.Identity{Note: "doctor"}}
}

// Run uses the engine for up to 20 s and returns findings. If the probe lock fails, it stops,
// unless a permission is missing: then it tries all parts, which may need others. The error is that
// of ctx, because findings made after ctx has ended say nothing about the engine.
func (t Trial) Run(ctx context.Context) ([]driver.Finding, error) {
	findings, err := t.lock(ctx)
	if err != nil && !t.Denied(err) {
		return findings, ctx.Err()
	}
	findings = append(findings, t.rights(ctx))
	if keeper, ok := t.Engine.(driver.RecordKeeper); ok && t.Engine.Traits().Leased {
		c, err := ReadClock(func() (time.Time, time.Time, error) { return keeper.Records().Clock(ctx) })
		switch {
		case err == nil:
			findings = append(findings, c.Judge())
		case !errors.Is(err, driver.ErrUnsupported): // what follows from that is for the engine to say
			findings = append(findings, Unchecked("clock", err, t.fix(err)))
		}
	}
	return findings, ctx.Err()
}

// fix returns what to do about an error.
func (t Trial) fix(err error) string {
	if t.Denied(err) {
		return t.grant(err)
	}
	return "follow the error message and the findings below"
}

// grant returns what to do about the error of a missing permission.
func (t Trial) grant(err error) string {
	if t.Lacks != nil && t.Lacks(err) {
		return t.Supply
	}
	return t.Grant
}

// lock acquires, renews and releases the probe lock.
func (t Trial) lock(ctx context.Context) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	var took []time.Duration
	var token int64
	begun := time.Now()
	err := t.hold(ctx, t.request(""), func(l driver.Lease) error {
		token = l.Token
		for len(took) < renewals && (len(took) == 0 || time.Since(begun) < lockLimit/2) {
			asked := time.Now()
			if err := t.renew(ctx, l); err != nil {
				return err
			}
			took = append(took, time.Since(asked))
		}
		return nil
	})
	if err != nil {
		return []driver.Finding{Found("probe lock", driver.Broken, driver.OneLine(err).Error(), "locks do not work at all", t.fix(err))}, err
	}
	findings := []driver.Finding{Passed("probe lock", fmt.Sprintf("acquired, renewed and released in %v, token %d", Short(time.Since(begun)), token))}
	if t.Engine.Traits().Leased {
		findings = append(findings, latency(took, t.TTL))
	}
	return findings, nil
}

// latency checks how long renewals take: at most a sixth of the TTL, so that two more attempts fit
// in before the lease expires.
func latency(took []time.Duration, ttl time.Duration) driver.Finding {
	slices.Sort(took)
	middle, longest, limit := took[len(took)/2], took[len(took)-1], ttl/6
	saw := fmt.Sprintf("p50 %v, longest %v, of %d renewals", Short(middle), Short(longest), len(took))
	switch {
	case middle > limit:
		return Found("latency", driver.Broken, saw, fmt.Sprintf("an attempt to renew a TTL of %v has %v, so locks are lost", ttl, limit),
			"use a longer TTL, or an engine that is closer")
	case longest > limit:
		return Found("latency", driver.Warning, saw, fmt.Sprintf("an attempt to renew a TTL of %v has %v; if three in a row take longer, the lock is lost", ttl, limit),
			"use a longer TTL")
	}
	return Passed("latency", saw)
}

// rights runs all parts and reports how each of them fails. If the probe lock works, the cause is
// mostly a missing permission, even if the engine does not report one.
func (t Trial) rights(ctx context.Context) driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	var words []string
	refused := map[string][]string{} // parts, by the words
	worst := driver.Good
	var why error
	for _, p := range parts {
		limited, cancel := context.WithTimeout(ctx, partLimit)
		req := t.request(p.name)
		err := p.try(t, limited, req)
		cancel()
		if err == nil {
			continue
		}
		said := strings.ReplaceAll(driver.OneLine(err).Error(), req.Name, "NAME")
		if refused[said] == nil {
			words = append(words, said)
		}
		refused[said] = append(refused[said], p.name+p.needs)
		why = errors.Join(why, err)
		worst = max(worst, p.severity)
	}
	var saw []string
	for _, said := range words {
		saw = append(saw, strings.Join(refused[said], ", ")+": "+said)
	}
	switch worst {
	case driver.Good:
		return Passed("rights", "everything that locks need is allowed")
	case driver.Broken:
		return Found("rights", worst, strings.Join(saw, "; "), "what needs these operations fails with these errors", t.grant(why))
	}
	return Found("rights", worst, strings.Join(saw, "; "), "locks work without these operations, which fail with these errors", t.grant(why))
}

// hold acquires a lock, calls do, and releases it, even after a signal. If the lock is not held any
// more, it was broken.
func (t Trial) hold(ctx context.Context, req driver.Request, do func(driver.Lease) error) error {
	g, err := t.Engine.Acquire(ctx, req)
	if err != nil {
		return err
	}
	l := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
	err = do(l)
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), req.TTL)
	defer cancel()
	if ended := t.Engine.Release(releasing, l); !errors.Is(ended, driver.ErrNotHeld) {
		err = errors.Join(err, ended)
	}
	return err
}

func (t Trial) renew(ctx context.Context, l driver.Lease) error {
	return t.Engine.Renew(ctx, []driver.Lease{l})[0]
}

// wait holds a lock, cancels one wait for it, and hands it over to a second waiter.
func (t Trial) wait(ctx context.Context, req driver.Request) error {
	handed, queued := make(chan error, 1), make(chan struct{})
	err := t.hold(ctx, req, func(driver.Lease) error {
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		next := req
		next.Wait, next.OnWait = true, func(driver.WaitInfo) { leave() }
		if _, err := t.Engine.Acquire(leaving, next); !errors.Is(err, context.Canceled) {
			return noSecond(err)
		}
		next.OnWait = func(driver.WaitInfo) { close(queued) }
		go func() { // ends when the waiter has released, or with ctx
			handed <- t.hold(ctx, next, func(l driver.Lease) error { return t.renew(ctx, l) })
		}()
		select {
		case <-queued:
			return nil
		case err := <-handed:
			return noSecond(err)
		}
	})
	if err == nil {
		err = <-handed
	}
	return err
}

// noSecond returns the error of a request that must not be granted, because the name is held.
func noSecond(err error) error {
	if err == nil {
		return errors.New("a second holder was granted the lock")
	}
	return err
}

// share holds a name twice.
func (t Trial) share(ctx context.Context, req driver.Request) error {
	req.Mode = driver.Shared
	if t.Engine.Traits().Limits {
		req.Limit = 2
	}
	return t.hold(ctx, req, func(driver.Lease) error {
		return t.hold(ctx, req, func(l driver.Lease) error { return t.renew(ctx, l) })
	})
}

func (t Trial) minHold(ctx context.Context, req driver.Request) error {
	if t.Engine.Traits().MaxMinHold < 0 {
		return nil
	}
	req.MinHold = time.Millisecond
	return t.hold(ctx, req, func(driver.Lease) error { return nil })
}

// end breaks a lock, of which its holder must be notified.
func (t Trial) end(ctx context.Context, req driver.Request) error {
	breaker, ok := t.Engine.(driver.Breaker)
	if !ok {
		return nil
	}
	lost := make(chan struct{})
	req.OnLost = func(error) { close(lost) }
	return t.hold(ctx, req, func(driver.Lease) error {
		if _, err := breaker.Break(ctx, req.Name, "doctor"); err != nil {
			return err
		}
		select {
		case <-lost:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the holder was not notified: %w", ctx.Err())
		}
	})
}

func (t Trial) list(ctx context.Context, req driver.Request) error {
	lister, ok := t.Engine.(driver.Lister)
	if !ok {
		return nil
	}
	return t.hold(ctx, req, func(driver.Lease) error {
		_, err := lister.List(ctx, driver.Query{Prefix: req.Name})
		return err
	})
}

// record writes a record that expires by itself, reads it and changes it, as a claim of a tick does.
func (t Trial) record(ctx context.Context, req driver.Request) error {
	keeper, ok := t.Engine.(driver.RecordKeeper)
	if !ok {
		return nil
	}
	records := keeper.Records()
	_, err := records.Swap(ctx, req.Name, []byte("doctor"), "", recordLife)
	if err != nil {
		return err
	}
	r, err := records.Get(ctx, req.Name)
	if err == nil && r.Version != "" { // otherwise it has expired
		_, err = records.Swap(ctx, req.Name, []byte("doctor"), r.Version, recordLife)
	}
	if errors.Is(err, driver.ErrConflict) { // it has expired in between
		return nil
	}
	return err
}

func (t Trial) rate(ctx context.Context, req driver.Request) error {
	limiter, ok := t.Engine.(driver.RateLimiter)
	if !ok {
		return nil
	}
	_, err := limiter.TakeRate(ctx, driver.RateTake{Key: req.Name, Cost: time.Millisecond, Most: time.Second})
	return errors.Join(err, limiter.ResetRate(ctx, req.Name))
}
