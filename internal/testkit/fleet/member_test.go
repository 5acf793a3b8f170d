//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// The environment of a member of the fleet.
const (
	envKind = "FENCELOCK_FLEET"
	envAddr = "FENCELOCK_FLEET_ADDR"
	envDir  = "FENCELOCK_FLEET_DIR"
	envWork = "FENCELOCK_FLEET_WORK" // set: it is a worker
)

const ttl = 2 * time.Second

var names = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// TestMain makes this binary a member of the fleet when a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv(envKind) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(envWork) != "" {
		if err := work(bufio.NewScanner(os.Stdin)); err != nil {
			fmt.Fprintf(os.Stderr, "%d: %v\n", os.Getpid(), err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	stop := make(chan struct{})
	go func() { // ends with the first line, or with the test
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); errors.Is(err, io.EOF) {
			os.Exit(1) // the test is gone
		}
		close(stop)
	}()
	if err := sail(stop); err != nil {
		fmt.Fprintf(os.Stderr, "%d: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
}

// A member takes sets of locks, one after the other.
type member struct {
	locks *fencelock.Locker
	dir   string
}

// sail works until told to stop, and then once more with patience: whoever waits
// gets its locks.
func sail(stop <-chan struct{}) error {
	e, err := open(os.Getenv(envKind), os.Getenv(envAddr))
	if err != nil {
		return err
	}
	m := member{fencelock.New(e, &fencelock.Config{TTL: ttl}), os.Getenv(envDir)}
	for {
		select {
		case <-stop:
			return m.last()
		default:
		}
		if err := m.turn(); err != nil {
			return err
		}
	}
}

// some returns some of the names, in any order.
func some() []string {
	picked := make([]string, 1+rand.N(4))
	for i, n := range rand.Perm(len(names))[:len(picked)] {
		picked[i] = names[n]
	}
	return picked
}

// turn takes a set, in one of the ways there are, and gives up early at times.
func (m member) turn() error {
	ctx, locks := context.Background(), m.locks
	var err error
	switch rand.N(6) {
	case 0:
		var set *fencelock.LockSet
		if set, err = locks.TryAcquireAll(ctx, some()...); err == nil {
			err = errors.Join(m.visit(set.Context(), set.Tokens(), set.Err), set.Release())
		}
	case 1:
		var set *fencelock.LockSet
		impatient, cancel := context.WithTimeout(ctx, rand.N(200*time.Millisecond))
		set, err = locks.AcquireAll(impatient, some()...)
		cancel()
		if err == nil {
			err = errors.Join(m.visit(set.Context(), set.Tokens(), set.Err), set.Release())
		}
	case 2:
		err = m.doAll(locks.With(fencelock.Options{Wait: rand.N(500 * time.Millisecond)}), some())
	default:
		err = m.doAll(locks, some())
	}
	return excuse(err)
}

// last takes all names at once, and must get them.
func (m member) last() error {
	for {
		err := m.doAll(m.locks, names)
		if err == nil || excuse(err) != nil {
			return err
		}
	}
}

// excuse returns nil for an error that may happen: others were there, the machine was so
// busy that a lease ended, or a context so short that it ended before its request.
func excuse(err error) error {
	for _, fine := range []error{fencelock.ErrHeld, fencelock.ErrLost, fencelock.ErrNotHeld, fencelock.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, fine) && !errors.Is(err, errOverlap) {
			fmt.Println(err)
			return nil
		}
	}
	return err
}

func (m member) doAll(locks *fencelock.Locker, set []string) error {
	return locks.DoAll(context.Background(), set, func(ctx context.Context) error {
		tokens := map[string]int64{}
		for _, name := range set {
			held, _ := fencelock.HeldFor(ctx, name)
			tokens[name] = held.Token
		}
		return m.visit(ctx, tokens, func() error {
			idle(ctx, time.Second) // a context may end late on a busy machine; Err does not
			return context.Cause(ctx)
		})
	})
}

var errOverlap = errors.New("two holders")

// visit comes to the books of all names, stays a moment, and goes. Whoever was
// overtaken must know by itself that it has lost its lock: otherwise there were
// two holders.
func (m member) visit(ctx context.Context, tokens map[string]int64, lost func() error) error {
	for _, step := range []func(logbook, int64) error{logbook.enter, logbook.leave} {
		for name, token := range tokens {
			err := step(logbook{m.dir, name}, token)
			if errors.Is(err, errOvertaken) && lost() == nil {
				return fmt.Errorf("%w of %s: %w", errOverlap, name, err)
			}
			if err != nil {
				return errors.Join(err, lost())
			}
		}
		idle(ctx, rand.N(20*time.Millisecond))
	}
	return nil
}

// idle waits for d, or for the end of ctx.
func idle(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
