package examtest

import (
	"context"
	"errors"
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
		r := g.round()
		for try := 1; try < 3 && r.tooLate(); try++ { // the machine may have been busy
			r = g.round()
		}
		if r.tooLate() {
			t.Errorf("a holder with a TTL of %v died. A waiter that was there was granted after %v, and one that arrived later after %v",
				goneTTL, r.there, r.late)
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

// tooLate reports whether a waiter was granted later than promised.
func (r times) tooLate() bool { return r.there > goneTTL+goneLate || r.late > 2*goneTTL+goneLate }

// round tests a holder that is cut off and one that is killed, at the same time.
func (g gone) round() (r times) {
	g.Helper()
	done := make(chan struct{})
	holder, next := g.open(g), g.open(g)
	g.work.Go(func() { // ends when the waiter is granted
		defer close(done)
		r.margin, r.deadline = g.silenced(holder, next)
	})
	r.there, r.late = g.killed(g.open(g), g.open(g), g.open(g))
	<-done
	return r
}

// silenced returns the time from the end of the context of a holder that is cut off to the next
// grant, and that from its deadline.
func (g gone) silenced(holder, next Link) (margin, deadline time.Duration) {
	lock, err := fencelock.New(holder, nil).With(fencelock.Options{TTL: goneTTL}).Acquire(g.Context(), "silenced")
	if err != nil {
		g.Error(err)
		return 0, 0
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(lock.Context(), func() { ended <- time.Now() })
	granted := g.queue(next, "silenced")
	time.Sleep(goneTTL / 2) // it has renewed by then
	if err := lock.Err(); err != nil {
		g.Error(err)
	}
	holder.Silence()
	at := <-granted
	// The context may end later than the deadline if this machine is so busy that timers are late.
	if deadline = at.Sub(lock.Deadline()); deadline < 0 || lock.Err() == nil {
		g.Errorf("the next grant came %v after the deadline of a holder that is cut off, whose Err is %v", deadline, lock.Err())
	}
	margin = at.Sub(<-ended)
	return margin, deadline
}

// killed returns the times from the death of a holder until two of its locks are granted: to a waiter
// that was there, and to one that arrives later.
func (g gone) killed(holder, there, late Link) (first, second time.Duration) {
	g.Helper()
	var leases []driver.Lease
	for _, name := range []string{"there", "late"} {
		grant := acquire(g, holder, driver.Request{Name: name, TTL: goneTTL})
		leases = append(leases, driver.Lease{Name: name, Owner: grant.Owner, Token: grant.Token, TTL: goneTTL})
	}
	before := g.queue(there, "there")
	renewed := time.Now()
	if err := errors.Join(holder.Renew(g.Context(), leases)...); err != nil {
		g.Fatal(err)
	}
	holder.Kill()
	died := time.Now()
	time.Sleep(goneArrives)
	after := <-g.queue(late, "late")
	least := renewed.Add(goneTTL)
	at := <-before
	if at.Before(least) || after.Before(least) {
		g.Errorf("waiters were granted %v and %v before the end of the lease", least.Sub(at), least.Sub(after))
	}
	return at.Sub(died), after.Sub(died)
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
