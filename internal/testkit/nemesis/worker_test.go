//go:build linux

package nemesis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
)

const (
	// ttl is that of every lock.
	ttl = time.Second

	// minimum is that of holds, at most.
	minimum = ttl / 2

	// hands is how many goroutines of a worker take locks. The first holds its own
	// for seconds, which are renewed, the others theirs for milliseconds.
	hands = 4

	longName, plainName, sharedName, limitedName, minimumName = "long", "plain", "shared", "limited", "minimum"

	// twins are how many names there are of each kind but the long one: a holder
	// that was killed or frozen stops everybody at one of them only.
	twins = 3
)

// names are those of all locks.
func names() []string {
	all := []string{longName}
	for i := range twins {
		for _, kind := range []string{plainName, sharedName, limitedName, minimumName} {
			all = append(all, fmt.Sprint(kind, i))
		}
	}
	return all
}

// envJob makes the test binary a worker; it has its job as JSON.
const envJob = "FENCELOCK_NEMESIS_JOB"

func TestMain(m *testing.M) {
	var j job
	switch err := json.Unmarshal([]byte(os.Getenv(envJob)), &j); {
	case os.Getenv(envJob) == "":
		os.Exit(m.Run())
	case err != nil:
		panic(err)
	}
	go func() { // ends with the test, and this process with it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := j.work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A job is what a worker is told.
type job struct {
	Kind    string // of the engine
	Known   known  // its servers
	Name    string // of the worker
	Seed    uint64
	Diary   string // its file
	Planted string // what is wrong with the engine, if anything
}

// work takes locks until the process is killed, or until SIGTERM tells it to end in
// order: then its waits are cancelled, its locks are released, and its engine is closed.
func (j job) work() error {
	file, err := os.OpenFile(j.Diary, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	engine, err := kinds[j.Kind].open(j.Known)
	for err != nil { // nobody may be there yet
		time.Sleep(10 * time.Millisecond)
		engine, err = kinds[j.Kind].open(j.Known)
	}
	limits := engine.Traits().Limits
	locks := fencelock.New(planted[j.Planted](engine), &fencelock.Config{ReleaseTimeout: ttl}).With(fencelock.Options{TTL: ttl})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error)
	for i := range uint64(hands) {
		h := &hand{ctx: ctx, locks: locks, long: i == 0, limits: limits, diary: diary{file}, name: fmt.Sprintf("%s.%d", j.Name, i), rand: rand.New(rand.NewPCG(j.Seed, i))}
		go func() { // ends with ctx
			var err error
			for ctx.Err() == nil && err == nil {
				err = h.turn()
			}
			ended <- err
		}()
	}
	for range hands {
		if err := <-ended; err != nil {
			return err
		}
	}
	if c, ok := engine.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// A hand is a goroutine that takes one lock after the other.
type hand struct {
	ctx    context.Context // ends when the process is told to
	locks  *fencelock.Locker
	long   bool // it holds for seconds
	limits bool // the engine has them
	diary  diary
	name   string
	rand   *rand.Rand
	turns  int
}

// A wish is what a hand wants to hold, how, and for how long.
type wish struct {
	names  []string
	opts   fencelock.Options
	length time.Duration
}

// held is a Lock or a LockSet.
type held interface {
	Err() error
	Release() error
}

// turn takes what it wishes for, holds it, and releases it. Its error is one of the diary.
func (h *hand) turn() error {
	w := h.wish()
	g := history.Acquisition{Shared: w.opts.Shared, Limit: w.opts.Limit, MinHold: w.opts.MinHold, Called: now()}
	lock, tokens, err := h.take(w)
	g.Returned = now()
	if err != nil {
		time.Sleep(h.below(5 * time.Millisecond)) // it may fail at once
		return h.excuse("acquire", err)
	}
	h.turns++
	id := fmt.Sprintf("%s#%d", h.name, h.turns)
	for name, token := range tokens {
		g.Name, g.Token = name, token
		if err := h.diary.grant(id+"/"+name, g); err != nil {
			return err
		}
	}
	if err := h.hold(id, lock, w); err != nil {
		return err
	}
	return h.excuse("release", lock.Release())
}

// wish chooses what to hold.
func (h *hand) wish() (w wish) {
	if h.long {
		return wish{names: []string{longName}, length: h.below(5 * ttl / 2)}
	}
	switch h.rand.IntN(5) {
	case 0:
		w.length = 0
	case 1:
		w.length = h.below(50 * time.Millisecond)
	default:
		w.length = h.below(5 * time.Millisecond)
	}
	kind := plainName
	switch n := h.rand.IntN(12); {
	case n < 4:
	case n < 6:
		kind = minimumName
		switch h.rand.IntN(3) {
		case 0:
			w.opts.MinHold = h.below(minimum)
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
	twin := h.rand.IntN(2 * twins)
	if twin >= twins {
		twin = 0 // one of them is sought after
	}
	w.names = []string{fmt.Sprint(kind, twin)}
	if kind != minimumName && h.rand.IntN(6) == 0 { // a set of two
		w.names = append(w.names, fmt.Sprint(kind, (twin+1)%twins))
	}
	return w
}

// take acquires with much patience, with little, or with none.
func (h *hand) take(w wish) (held, map[string]int64, error) {
	limit := 2 * ttl
	switch h.rand.IntN(6) {
	case 0:
		limit = h.below(15 * time.Millisecond)
	case 1:
		limit = h.below(ttl)
	case 2:
		limit = 0
	}
	locks := h.locks.With(w.opts)
	one, set := locks.Acquire, locks.AcquireAll
	ctx, cancel := h.ctx, func() {}
	if limit == 0 {
		one, set = locks.TryAcquire, locks.TryAcquireAll
	} else {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	if len(w.names) > 1 {
		s, err := set(ctx, w.names...)
		if err != nil {
			return nil, nil, err
		}
		tokens := map[string]int64{}
		for _, l := range s.Locks() {
			tokens[l.Name()] = l.Token()
		}
		return s, tokens, nil
	}
	l, err := one(ctx, w.names[0])
	if err != nil {
		return nil, nil, err
	}
	return l, map[string]int64{l.Name(): l.Token()}, nil
}

// hold stays for a while and asks again and again whether the lock is still held.
// Each time that it is, it was so at a moment that was read before.
func (h *hand) hold(id string, lock held, w wish) error {
	for end := now() + w.length; ; {
		at := now()
		if err := lock.Err(); err != nil {
			time.Sleep(h.below(5 * time.Millisecond)) // a late release must free nobody else's lock
			return h.excuse("lost", err)
		}
		for _, name := range w.names {
			if err := h.diary.believed(id+"/"+name, at); err != nil {
				return err
			}
		}
		if at >= end {
			return nil
		}
		time.Sleep(min(end-at, max(w.length/50, time.Millisecond)))
	}
}

// below returns a time of up to d.
func (h *hand) below(d time.Duration) time.Duration { return time.Duration(h.rand.Int64N(int64(d))) }

// excuse notes an error: others were there, or the faults were.
func (h *hand) excuse(what string, err error) error {
	if err == nil {
		return nil
	}
	for _, fine := range []error{
		driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld, driver.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, fine) {
			return h.diary.counts(fmt.Sprintf("%s: %v", what, fine))
		}
	}
	return h.diary.wrong(fmt.Errorf("%s: %w", what, err))
}
