package examtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
)

// Link is an engine of one process, and the faults of its connections.
type Link struct {
	driver.Engine
	Silence func() // from now on, all that it sends and is sent is lost
	Kill    func() // its connections end for good, as with its process
}

// Links returns a function that opens engines on the server at addr, "host:port", each through a
// proxy of its own.
func Links(addr string, open func(t testing.TB, addr string) driver.Engine) func(testing.TB) Link {
	return func(t testing.TB) Link {
		t.Helper()
		p, err := faults.NewProxy(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return Link{
			Engine:  open(t, p.Addr()),
			Silence: func() { p.Drop(faults.Both) },
			Kill:    func() { p.Refuse(); p.Reset() },
		}
	}
}

const (
	goneTTL = 2 * time.Second
	// goneLate is how much later than allowed a waiter may be granted the lock: it polls, and its
	// requests take time.
	goneLate = time.Second
	// goneArrives is when a waiter arrives that was not there when the holder died. It is close to the
	// end of the lease, since a process that cannot read the store's clock begins to count then.
	goneArrives = goneTTL * 3 / 4
)

// gone is a test of what happens after a holder is gone.
type gone struct {
	testing.TB
	open func(testing.TB) Link
	work *sync.WaitGroup // its goroutines, for which the end of the test waits
}

// times are results of one round.
type times struct {
	margin   time.Duration // from the end of the context of a holder that is cut off to the next grant
	deadline time.Duration // the same, from the deadline
	there    time.Duration // from a holder's death to the grant of a waiter that was there
	late     time.Duration // the same, of a waiter that arrived later
}

// Gone fails the test if a waiter is granted the lock of a holder that is cut off before that holder
// has lost it, or that of a holder that has died later than recordlock promises: one TTL after the
// death, and two TTLs for a waiter that was not there before. It logs the times. Open returns another
// engine for the same locks.
func Gone(t testing.TB, open func(testing.TB) Link) {
	t.Helper()
	g, rounds := gone{t, open, new(sync.WaitGroup)}, 1
	t.Cleanup(g.work.Wait)
	if os.Getenv("FENCELOCK_SLOW") != "" {
		rounds = 10
	}
	var all []times
	for range rounds {
		r, err := g.round()
		for try := 1; try < 3 && err != nil; try++ { // the machine may have been busy
			r, err = g.round()
		}
		if err != nil {
			t.Error(err)
		}
		all = append(all, r)
	}
	for _, row := range []struct {
		what string
		time func(times) time.Duration
	}{
		{"cut off: the next grant, after the end of the context", func(r times) time.Duration { return r.margin }},
		{"cut off: the next grant, after the deadline", func(r times) time.Duration { return r.deadline }},
		{"killed: the grant of a waiter that was there", func(r times) time.Duration { return r.there }},
		{"killed: the grant of a waiter that arrived later", func(r times) time.Duration { return r.late }},
	} {
		slices.SortFunc(all, func(a, b times) int { return int(row.time(a) - row.time(b)) })
		t.Logf("%s: %v to %v (TTL %v, rounds: %d)", row.what, row.time(all[0]), row.time(all[rounds-1]), goneTTL, rounds)
	}
}

// round tests a holder that is cut off and one that is killed, at the same time. It returns an error if
// something took too long.
func (g gone) round() (r times, err error) {
	g.Helper()
	cut := make(chan error, 1)
	holder, next := g.open(g), g.open(g)
	g.work.Go(func() { cut <- g.silenced(&r, holder, next) }) // ends when the waiter is granted
	err = g.killed(&r, g.open(g), g.open(g), g.open(g))
	err = errors.Join(<-cut, err)
	return r, err
}

// silenced cuts off a holder while a waiter is there.
func (g gone) silenced(r *times, holder, next Link) error {
	lock, err := fencelock.New(holder, nil).With(fencelock.Options{TTL: goneTTL}).Acquire(g.Context(), "silenced")
	if err != nil {
		return err
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	granted := g.queue(next, "silenced")
	time.Sleep(goneTTL / 2) // it has renewed by then
	early := lock.Err()
	holder.Silence()
	at := <-granted
	// The context may end later than the deadline if this machine is so busy that timers are late.
	if r.deadline = at.Sub(lock.Deadline()); r.deadline < 0 || lock.Err() == nil {
		g.Errorf("the next grant came %v after the deadline of a holder that is cut off, whose Err is %v", r.deadline, lock.Err())
	}
	r.margin = at.Sub(<-ended)
	return early
}

// killed kills a holder of two locks. One waiter is there, and the other one arrives later.
func (g gone) killed(r *times, holder, there, late Link) error {
	g.Helper()
	var leases []driver.Lease
	for _, name := range []string{"there", "late"} {
		grant := acquire(g, holder, driver.Request{Name: name, TTL: goneTTL, Wait: true})
		leases = append(leases, driver.Lease{Name: name, Owner: grant.Owner, Token: grant.Token, TTL: goneTTL})
	}
	before := g.queue(there, "there")
	renewed := time.Now()
	early := errors.Join(holder.Renew(g.Context(), leases)...)
	holder.Kill()
	died := time.Now()
	time.Sleep(goneArrives)
	second := <-g.queue(late, "late")
	first, least := <-before, renewed.Add(goneTTL)
	r.there, r.late = first.Sub(died), second.Sub(died)
	switch {
	case early != nil:
		return early
	case first.Before(least) || second.Before(least):
		g.Errorf("waiters were granted %v and %v before the end of the lease", least.Sub(first), least.Sub(second))
	case r.there > goneTTL+goneLate || r.late > 2*goneTTL+goneLate:
		return fmt.Errorf("a holder with a TTL of %v died. A waiter that was there was granted after %v, and one that arrived later after %v",
			goneTTL, r.there, r.late)
	}
	return nil
}

// queue waits for a lock that is held, and releases it. It returns as soon as it has a place among the
// waiters. The channel has the time of the grant.
func (g gone) queue(e driver.Engine, name string) <-chan time.Time {
	granted, queued := make(chan time.Time, 1), make(chan struct{})
	g.work.Go(func() { // ends with the grant
		req := driver.Request{Name: name, TTL: goneTTL, Wait: true, OnWait: func(driver.WaitInfo) { close(queued) }}
		ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
		defer cancel()
		grant, err := e.Acquire(ctx, req)
		at := time.Now()
		if err == nil {
			err = e.Release(ctx, driver.Lease{Name: name, Owner: grant.Owner, Token: grant.Token, TTL: goneTTL})
		}
		if err != nil {
			g.Errorf("the waiter for %q: %v", name, err)
		}
		granted <- at
	})
	select {
	case <-queued:
	case at := <-granted: // at once
		granted <- at
	}
	return granted
}
