//go:build unix

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
	wallclock "github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/reexec"
)

const (
	// hands is how many goroutines of a worker take locks. The first holds its own for seconds,
	// which are renewed, the others theirs for milliseconds.
	hands = 4

	longName, plainName, sharedName, limitedName, minimumName = "long", "plain", "shared", "limited", "minimum"

	// defaultTwins are how many names there are of each kind but the long one: a holder that was
	// killed or frozen stops everybody at one of them only.
	defaultTwins = 3
)

// names are those of all locks, after a prefix.
func names(prefix string, twins int) []string {
	all := []string{prefix + longName}
	for i := range twins {
		for _, kind := range []string{plainName, sharedName, limitedName, minimumName} {
			all = append(all, fmt.Sprint(prefix+kind, i))
		}
	}
	return all
}

// minimumOf is the minimum hold, at most.
func minimumOf(ttl time.Duration) time.Duration { return ttl / 2 }

// A job is what a worker has to do.
type job struct {
	URL      string // of the engine; it may hold a password
	Resolver string // where it asks for its proxies
	TTL      time.Duration
	Names    string // what the names of all locks begin with
	Twins    int    // how many names there are of each kind
	Worker   string // the lane
	Process  string // the name of this process, unique in the run
	Dir      string // of the histories and the guarded counters
	Seed     uint64
	Sabotage string
	Pause    time.Duration // between two calls of a hand, at least
}

// Job is the job of the workers, by its name. A program or a test binary that runs rounds passes it
// to reexec.Main.
func Job(open Opener) map[string]reexec.Job {
	return map[string]reexec.Job{jobName: reexec.Of(func(j job, in *bufio.Scanner) error {
		go func() {
			for in.Scan() { // how far the wall clock is to be ahead; until the harness ends, and this process with it
				if ahead, err := time.ParseDuration(in.Text()); err == nil {
					wallclock.Step(ahead)
				}
			}
			os.Exit(1)
		}()
		return j.work(open)
	})}
}

const jobName = "chaos worker"

// work takes locks until the process is killed, or until SIGTERM tells it to end in
// order: then its waits are cancelled, its locks are released, and its engine is closed. An
// interrupt typed at a terminal is for the harness.
func (j job) work(open Opener) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	events, err := history.Create(j.Dir, j.Worker)
	if err != nil {
		return err
	}
	engine, end, err := open(ctx, j.URL, j.dial)
	for ; err != nil; engine, end, err = open(ctx, j.URL, j.dial) { // the server may be down
		if ctx.Err() != nil {
			return nil // nothing was taken
		}
		time.Sleep(10 * time.Millisecond)
	}
	locks := fencelock.New(sabotaged(engine, j.Sabotage), &fencelock.Config{ReleaseTimeout: j.TTL})
	var all sync.WaitGroup
	for i := range uint64(hands) {
		h := &hand{
			job: j, ctx: ctx, events: events, name: fmt.Sprintf("%s.%d", j.Process, i), long: i == 0,
			locks: locks.With(fencelock.Options{TTL: j.TTL}), limits: engine.Traits().Limits,
			rand: rand.New(rand.NewPCG(j.Seed, i)),
		}
		all.Go(func() { // ends with ctx
			for ctx.Err() == nil {
				h.turn()
			}
		})
	}
	all.Wait()
	return errors.Join(end(), events.Close())
}

// A hand is a goroutine that takes one lock after the other.
type hand struct {
	job
	ctx    context.Context // ends at SIGTERM
	events *history.Writer
	locks  *fencelock.Locker
	name   string
	long   bool // it holds for seconds
	limits bool // the engine has them
	rand   *rand.Rand
	turns  int
}

// A wish is what a hand wants to hold, how, and for how long.
type wish struct {
	id       string // of the turn
	names    []string
	opts     fencelock.Options
	length   time.Duration
	patience time.Duration // 0 means that it does not wait
}

// A held lock is a Lock or a LockSet.
type held interface {
	Err() error
	Release() error
	Context() context.Context
}

// turn takes what it wishes for, holds it, and releases it.
func (h *hand) turn() {
	w := h.wish()
	h.each(w, history.Event{Kind: history.Call, Try: w.patience == 0})
	defer h.pause(history.Now())
	lock, all, err := h.take(w)
	at := history.Now()
	if err == nil && lock.Err() != nil { // it was over before its holder could know
		_ = lock.Release()
		err = lock.Err()
	}
	if err != nil {
		time.Sleep(h.below(5 * time.Millisecond)) // it may fail at once
		text := "canceled"
		if h.ctx.Err() == nil {
			text = err.Error()
		}
		h.each(w, history.Event{Kind: history.Failed, Held: errors.Is(err, driver.ErrHeld), Text: text})
		h.excuse("acquire", w, err)
		return
	}
	fmt.Println() // the harness counts lines; if it has ended, so does this process
	for i, l := range all {
		h.record(history.Event{
			At: at, Kind: history.Grant, ID: id(w, i), Name: l.Name(), Token: l.Token(),
			Shared: w.opts.Shared, Limit: w.opts.Limit, MinHold: w.opts.MinHold,
		})
	}
	over := make(chan struct{})
	context.AfterFunc(lock.Context(), func() { // at the latest when it is released
		defer close(over)
		h.lost(w, context.Cause(lock.Context()), all)
	})
	h.hold(w, lock, all)
	h.each(w, history.Event{Kind: history.End})
	h.excuse("release", w, lock.Release())
	<-over
}

// pause bounds the rate of turns.
func (h *hand) pause(since time.Duration) {
	select {
	case <-time.After(since + h.Pause - history.Now()):
	case <-h.ctx.Done():
	}
}

// record records an event.
func (h *hand) record(e history.Event) { h.must(h.events.Write(e)) }

// must ends the process after an error of its history or its counters.
func (h *hand) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// id is that of an acquisition in a turn.
func id(w wish, i int) string { return fmt.Sprintf("%s/%d", w.id, i) }

// each records an event of all locks of a turn.
func (h *hand) each(w wish, e history.Event) {
	e.At = cmp.Or(e.At, history.Now())
	for i, name := range w.names {
		e.ID, e.Name = id(w, i), name
		h.record(e)
	}
}

// wish chooses what to hold.
func (h *hand) wish() (w wish) {
	h.turns++
	ttl := h.TTL
	w.id, w.patience = fmt.Sprintf("%s#%d", h.name, h.turns), 2*ttl
	switch h.rand.IntN(6) {
	case 0:
		w.patience = h.below(15*time.Millisecond) + 1
	case 1:
		w.patience = h.below(ttl) + 1
	case 2:
		w.patience = 0
	}
	if h.long {
		w.names, w.length = []string{h.Names + longName}, h.below(5*ttl/2)
		return w
	}
	w.length = h.below([]time.Duration{1, 50 * time.Millisecond, 5 * time.Millisecond}[min(h.rand.IntN(5), 2)])
	kind := plainName
	switch n := h.rand.IntN(12); {
	case n < 4:
	case n < 6:
		kind = minimumName
		switch h.rand.IntN(3) {
		case 0:
			w.opts.MinHold = h.below(minimumOf(ttl))
		case 1:
			w.opts.Shared = true // beside whom no minimum may run
		}
	case n < 9 || !h.limits:
		kind, w.opts.Shared = sharedName, h.rand.IntN(2) == 0
	default:
		kind = limitedName
		if h.rand.IntN(4) > 0 {
			w.opts.Shared, w.opts.Limit = true, 2
		}
	}
	twin := max(h.rand.IntN(2*h.Twins)-h.Twins, 0) // the first is sought after
	w.names = []string{fmt.Sprint(h.Names+kind, twin)}
	if kind != minimumName && h.rand.IntN(6) == 0 { // a set of two
		w.names = append(w.names, fmt.Sprint(h.Names+kind, (twin+1)%h.Twins))
		slices.Sort(w.names) // as those of a set
	}
	return w
}

// take acquires with much patience, with little, or with none.
func (h *hand) take(w wish) (held, []*fencelock.Lock, error) {
	locks := h.locks.With(w.opts)
	one, set := locks.Acquire, locks.AcquireAll
	ctx, cancel := h.ctx, func() {}
	if w.patience == 0 {
		one, set = locks.TryAcquire, locks.TryAcquireAll
	} else {
		ctx, cancel = context.WithTimeout(ctx, w.patience)
	}
	defer cancel()
	if len(w.names) > 1 {
		s, err := set(ctx, w.names...)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Locks(), nil
	}
	l, err := one(ctx, w.names[0])
	if err != nil {
		return nil, nil, err
	}
	return l, []*fencelock.Lock{l}, nil
}

// lost records that the library has signalled a loss.
func (h *hand) lost(w wish, cause error, all []*fencelock.Lock) {
	at := history.Now()
	if !errors.Is(cause, driver.ErrLost) {
		return
	}
	for i, l := range all {
		deadline := time.Duration(0)
		if d := l.Deadline(); !d.IsZero() {
			deadline = at + time.Until(d)
		}
		h.record(history.Event{At: at, Kind: history.Lost, ID: id(w, i), Name: l.Name(), Until: deadline, Text: cause.Error()})
	}
}

// hold stays for a while and asks again and again whether the lock is still held. Each time that it
// is, it was so at a moment that was read before. Now and then it writes, also after a loss, as a
// holder does that has not asked.
func (h *hand) hold(w wish, lock held, all []*fencelock.Lock) {
	for end := history.Now() + w.length; ; {
		at := history.Now()
		if err := lock.Err(); err != nil {
			time.Sleep(h.below(5 * time.Millisecond)) // a late release must free nobody else's lock
			h.write(w, all)
			h.excuse("lost", w, err)
			return
		}
		h.each(w, history.Event{At: at, Kind: history.Alive})
		if h.rand.IntN(4) == 0 {
			h.write(w, all)
		}
		if at >= end {
			return
		}
		time.Sleep(min(end-at, max(w.length/50, time.Millisecond)))
	}
}

// write counts up the guarded counters of exclusive locks.
func (h *hand) write(w wish, all []*fencelock.Lock) {
	if w.opts.Shared {
		return
	}
	for i, l := range all {
		from := history.Now()
		count, refused, err := countUp(h.Dir, l.Name(), l.Token(), h.Sabotage == "guard")
		h.must(err)
		h.record(history.Event{
			Kind: history.Write, ID: id(w, i), Name: l.Name(), Token: l.Token(), From: from, Value: count, Refused: refused,
		})
	}
}

// below returns a time of up to d.
func (h *hand) below(d time.Duration) time.Duration { return time.Duration(h.rand.Int64N(int64(d))) }

// excuse records an error that must not be. The others come of other holders, or of the faults.
func (h *hand) excuse(what string, w wish, err error) {
	if err != nil && !slices.ContainsFunc([]error{
		driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld, driver.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	}, func(fine error) bool { return errors.Is(err, fine) }) {
		h.record(history.Event{Kind: history.Wrong, ID: id(w, 0), Name: w.names[0], Text: fmt.Sprintf("%s: %v", what, err)})
	}
}
