//go:build unix

package semaphore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/crew"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/semaphore"
)

const (
	size     = 5
	fleetTTL = 4 * time.Second  // of permits whose end a test waits for
	longTTL  = 30 * time.Second // of all others: a slow machine does not lose them
	slack    = 10 * time.Second // for a busy machine, beyond the TTL
)

// A fleet of processes on a semaphore of five, on the engines that ship: never six
// at once, whoever is killed or stands still, and however often the size changes;
// and always five again. With FENCELOCK_SLOW set, fifty processes.
func TestFleet(t *testing.T) {
	count := 12
	if slow {
		count = 50
	}
	eachStore(t, func(t *testing.T, at engines.Store) {
		s, locks := visit(t, at)
		f := &fleet{t: t, at: at, s: s, leased: at.Kind != "files", book: openBook(t)}
		for i := range count {
			f.hire(1+i%6/5+i%12/11, 50*time.Millisecond, 0)
		}
		f.book.until("everybody had a permit", func() bool { return len(f.book.turns) == count })
		f.book.untilFull("all of it is used")
		f.kill()
		f.freeze()
		f.resize()
		for _, w := range f.all {
			w.Dismiss()
		}
		for _, w := range f.all {
			await(t, w)
		}
		f.book.read()
		untilStatus(t, s, "everybody has left", func(st semaphore.Status) bool { return st.Taken == 0 && len(st.Waiters) == 0 })
		release(t, mustTake(t, s, size))
		if _, err := locks.TryAcquire(t.Context(), name); err != nil {
			t.Errorf("all is back, and yet: %v", err)
		}
		t.Logf("%d permits, %d at once at most, full %d times", f.book.permits, f.book.most, f.book.full)
	})
}

// fleet is many workers on one semaphore.
type fleet struct {
	t      *testing.T
	at     engines.Store
	s      *semaphore.Semaphore
	leased bool
	book   *book
	all    []*crew.Worker
}

func (f *fleet) hire(weight int, work time.Duration, rounds int) *crew.Worker {
	f.t.Helper()
	w := crew.Hire(f.t, "worker", orders{Store: f.at, Book: f.book.path, Weight: weight, Work: work, Rounds: rounds, TTL: longTTL})
	f.all = append(f.all, w)
	return w
}

// await waits until the worker has ended by itself.
func await(t *testing.T, w *crew.Worker) {
	t.Helper()
	if err := w.Wait(); err != nil {
		t.Errorf("worker %d: %v", w.Process().Pid, err)
	}
}

// victim is a worker that holds a permit for as long as it is let.
func (f *fleet) victim() *crew.Worker {
	f.t.Helper()
	w := crew.Hire(f.t, "worker", orders{Store: f.at, Book: f.book.path, Weight: 1, Work: time.Hour, Rounds: 1, TTL: fleetTTL})
	f.book.until("the victim has its permit", func() bool { return f.book.live[w.Process().Pid] > 0 })
	return w
}

// kill kills a holder: its permit is back when its TTL ends.
func (f *fleet) kill() {
	f.t.Helper()
	w := f.victim()
	f.book.gone(w)
	w.Kill()
	f.wantBack("the permit of a holder that was killed")
}

// freeze stops a holder: its permit is back when its TTL ends, and it knows as soon
// as it goes on. Without leases it keeps its permit.
func (f *fleet) freeze() {
	f.t.Helper()
	w := f.victim()
	proc.Freeze(f.t, w.Process())
	if !f.leased {
		f.keeps(w)
		return
	}
	f.book.gone(w)
	f.wantBack("the permit of a holder that stands still")
	proc.Thaw(f.t, w.Process())
	f.book.until("it knows of its loss", func() bool { return f.book.lost[w.Process().Pid] })
	await(f.t, w)
}

// keeps fails the test unless a holder that stands still has its permit a TTL later,
// and gives it back when it dies.
func (f *fleet) keeps(w *crew.Worker) {
	f.t.Helper()
	time.Sleep(fleetTTL)
	st, err := f.s.Status(f.t.Context())
	if err != nil || !slices.ContainsFunc(st.Holders, func(h fencelock.Holder) bool { return h.PID == w.Process().Pid }) {
		f.t.Errorf("process %d has lost its permit: %+v, %v", w.Process().Pid, st.Holders, err)
	}
	f.book.gone(w)
	w.Kill()
	f.wantBack("the permit of a holder that died while it stood still")
}

// wantBack fails the test unless all of the size is used again, in time.
func (f *fleet) wantBack(what string) {
	f.t.Helper()
	took := f.book.untilFull(what + " is back")
	f.t.Logf("%s was back after %v", what, took.Round(time.Millisecond))
	if took > fleetTTL+slack {
		f.t.Errorf("%s was back after %v, with a TTL of %v", what, took, fleetTTL)
	}
}

// resize makes the semaphore smaller and larger again while all work.
func (f *fleet) resize() {
	f.t.Helper()
	if err := f.s.Resize(f.t.Context(), 2); err != nil {
		f.t.Fatal(err)
	}
	mark, err := f.s.Acquire(f.t.Context(), 1)
	if err != nil {
		f.t.Fatal(err)
	}
	untilStatus(f.t, f.s, "the size is 2", func(st semaphore.Status) bool { return st.Size == 2 })
	release(f.t, mark)
	f.book.read()
	f.book.since = mark.Token() // greater tokens were granted after Resize
	f.book.lower = 2
	before := f.book.permits
	f.book.until("40 permits under the lowered size", func() bool { return f.book.permits > before+40 })
	f.book.lower = 0
	if err := f.s.Resize(f.t.Context(), size); err != nil {
		f.t.Fatal(err)
	}
	took := f.book.untilFull("all of the size is used again")
	f.t.Logf("raised: five at once after %v", took.Round(time.Millisecond))
}

// Processes that wait get in in their order, a heavy one before the light ones
// behind it.
func TestFleetKeepsItsOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, at engines.Store) {
		s, _ := visit(t, at)
		all := mustTake(t, s, size)
		f := &fleet{t: t, at: at, s: s, book: openBook(t)}
		for i, weight := range []int{1, 1, 4, 1, 2, 5, 1, 3} {
			f.hire(weight, 50*time.Millisecond, 1)
			f.book.until("it waits", func() bool { return f.book.waits == i+1 })
		}
		untilStatus(t, s, "all wait", func(st semaphore.Status) bool { return st.Taken == size && len(st.Waiters) == len(f.all) })
		release(t, all)
		for _, w := range f.all {
			await(t, w)
		}
		f.book.read()
		var got []int64
		for _, w := range f.all {
			got = append(got, f.book.token[w.Process().Pid])
		}
		if f.book.permits != len(f.all) || !slices.IsSorted(got) {
			t.Errorf("tokens in the order of arrival: %v", got)
		}
	})
}

// untilStatus looks until the status, which may be a little late, is as it should be.
func untilStatus(t *testing.T, s *semaphore.Semaphore, what string, done func(semaphore.Status) bool) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if done(st) {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("not in a minute: %s; %+v", what, st)
		}
	}
}

func mustTake(t *testing.T, s *semaphore.Semaphore, weight int) *fencelock.Lock {
	t.Helper()
	permit, err := s.TryAcquire(t.Context(), weight)
	if err != nil {
		t.Fatal(err)
	}
	return permit
}
