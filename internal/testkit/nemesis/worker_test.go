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
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/check"
)

const (
	// ttl is that of every lock.
	ttl = time.Second

	// hands is how many goroutines of a worker take locks. The first holds its own
	// for seconds, which are renewed, the others theirs for milliseconds.
	hands = 4

	longName, plainName, sharedName, limitedName = "long", "plain", "shared", "limited"

	// twins are how many names there are of each kind but the long one: a holder
	// that was killed or frozen stops everybody at one of them only.
	twins = 3
)

// names are those of all locks.
func names() []string {
	all := []string{longName}
	for i := range twins {
		for _, kind := range []string{plainName, sharedName, limitedName} {
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

// work takes locks until the process is killed.
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
	engine = planted[j.Planted](engine)
	locks := fencelock.New(engine, &fencelock.Config{TTL: ttl, ReleaseTimeout: ttl})
	failed := make(chan error)
	for i := range uint64(hands) {
		h := &hand{locks: locks, long: i == 0, limits: limits, diary: diary{file}, name: fmt.Sprintf("%s.%d", j.Name, i), rand: rand.New(rand.NewPCG(j.Seed, i))}
		go func() { // ends with the process
			for {
				if err := h.turn(); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// A hand is a goroutine that takes one lock after the other.
type hand struct {
	locks  *fencelock.Locker
	long   bool // it holds for seconds
	limits bool // the engine has them
	diary  diary
	name   string
	rand   *rand.Rand
	turns  int
}

// turn takes one lock, holds it, and releases it. Its error is one of the diary.
func (h *hand) turn() error {
	name, opts, length := h.wish()
	g := check.Grant{Name: name, Shared: opts.Shared, Limit: opts.Limit, Called: now()}
	lock, err := h.take(name, opts)
	g.Returned = now()
	if err != nil {
		time.Sleep(h.below(5 * time.Millisecond)) // it may fail at once
		return h.excuse("acquire", err)
	}
	g.Token = lock.Token()
	h.turns++
	id := fmt.Sprintf("%s#%d", h.name, h.turns)
	if err := h.diary.grant(id, g); err != nil {
		return err
	}
	if err := h.hold(id, lock, length); err != nil {
		return err
	}
	return h.excuse("release", lock.Release())
}

// wish chooses a lock and for how long it is to be held.
func (h *hand) wish() (name string, opts fencelock.Options, length time.Duration) {
	if h.long {
		return longName, opts, h.below(5 * ttl / 2)
	}
	switch h.rand.IntN(5) {
	case 0:
		length = 0
	case 1:
		length = h.below(50 * time.Millisecond)
	default:
		length = h.below(5 * time.Millisecond)
	}
	switch n := h.rand.IntN(10); {
	case n < 4:
		name = plainName
	case n < 7 || !h.limits:
		name, opts.Shared = sharedName, h.rand.IntN(2) == 0
	default:
		name = limitedName
		if h.rand.IntN(4) > 0 {
			opts.Shared, opts.Limit = true, 2
		}
	}
	twin := h.rand.IntN(2 * twins)
	if twin >= twins {
		twin = 0 // one of them is sought after
	}
	return fmt.Sprint(name, twin), opts, length
}

// take acquires with much patience, with little, or with none.
func (h *hand) take(name string, opts fencelock.Options) (*fencelock.Lock, error) {
	locks := h.locks.With(opts)
	limit := 2 * ttl
	switch h.rand.IntN(6) {
	case 0:
		limit = h.below(15 * time.Millisecond)
	case 1:
		limit = h.below(ttl)
	case 2:
		return locks.TryAcquire(context.Background(), name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return locks.Acquire(ctx, name)
}

// hold stays for a while and asks again and again whether the lock is still held.
// Each time that it is, it was so at a moment that was read before.
func (h *hand) hold(id string, lock *fencelock.Lock, length time.Duration) error {
	for end := now() + length; ; {
		at := now()
		if err := lock.Err(); err != nil {
			time.Sleep(h.below(5 * time.Millisecond)) // a late release must free nobody else's lock
			return h.excuse("lost", err)
		}
		if err := h.diary.believed(id, at); err != nil || at >= end {
			return err
		}
		time.Sleep(min(end-at, max(length/50, time.Millisecond)))
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
		driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld, driver.ErrUnavailable, context.DeadlineExceeded,
	} {
		if errors.Is(err, fine) {
			return h.diary.counts(fmt.Sprintf("%s: %v", what, fine))
		}
	}
	return h.diary.wrong(fmt.Errorf("%s: %w", what, err))
}
