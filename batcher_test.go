package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// patchy is an engine of which a part does not answer renewals while it is silent.
type patchy struct {
	driver.Engine

	mu      sync.Mutex // guards silent, cut, flying, batches, mixed
	silent  bool
	cut     int   // calls whose context ended before its deadline
	flying  int   // calls under way
	batches []int // the size of each call that a silent lease was in
	mixed   int   // calls with leases of several parts
}

// part is the first word of a lease's name.
func part(lease driver.Lease) string { return lease.Name[:strings.Index(lease.Name, "-")] }

// sick reports whether a lease is of the part that falls silent.
func sick(lease driver.Lease) bool { return part(lease) == "sick" }

func (p *patchy) Renew(ctx context.Context, leases []driver.Lease) []error {
	p.mu.Lock()
	silent := p.silent
	p.flying++
	p.mu.Unlock()
	errs := make([]error, len(leases))
	waits, mixed := false, false
	for i, lease := range leases {
		mixed = mixed || part(lease) != part(leases[0])
		if silent && sick(lease) {
			errs[i], waits = errors.New("no answer"), true
			continue
		}
		errs[i] = p.Engine.Renew(ctx, []driver.Lease{lease})[0]
	}
	if waits {
		<-ctx.Done()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
	if mixed {
		p.mixed++
	}
	if waits {
		p.batches = append(p.batches, len(leases))
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		p.cut++
	}
	return errs
}

func (p *patchy) fallSilent(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// flights returns how many calls are under way.
func (p *patchy) flights() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flying
}

// parted is a patchy engine that says which part a lease belongs to.
type parted struct{ *patchy }

func (parted) Part(lease driver.Lease) string { return part(lease) }

// A part that does not answer costs its own locks, and no other, whether the engine
// knows its parts or only answers late for those that got an answer, and whether all
// locks come due at once or not.
func TestASilentPartLosesNoLockOfAnother(t *testing.T) {
	for _, c := range []struct {
		what  string
		parts bool
		apart time.Duration
	}{
		{"parts, at once", true, 0},
		{"parts, one after the other", true, 11 * time.Second},
		{"no parts, at once", false, 0},
		{"no parts, one after the other", false, 11 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSilentPart(t, c.parts, c.apart) })
		})
	}
}

func testSilentPart(t *testing.T, parts bool, apart time.Duration) {
	patchy := &patchy{Engine: memlock.New(nil)}
	engine := driver.Engine(patchy)
	if parts {
		engine = parted{patchy}
	}
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
	var sick, well []*fencelock.Lock
	for i := range 100 {
		sick = append(sick, acquire(t, locks, fmt.Sprint("sick-", i)))
		well = append(well, acquire(t, locks, fmt.Sprint("one-", i)), acquire(t, locks, fmt.Sprint("two-", i)))
		time.Sleep(apart)
	}
	patchy.fallSilent(true)
	time.Sleep(5 * hour)
	lost := 0
	for _, l := range well {
		if l.Err() != nil {
			lost++
		}
		_ = l.Release()
	}
	if lost > 0 {
		t.Errorf("%d of %d locks of the parts that answer were lost", lost, len(well))
	}
	for _, l := range sick {
		if err := l.Err(); !errors.Is(err, fencelock.ErrLost) {
			t.Fatalf("a lock of the silent part: %v", err)
		}
	}
	time.Sleep(hour) // until the last call is over
	if parts && patchy.mixed > 0 {
		t.Errorf("%d calls had leases of several parts", patchy.mixed)
	}
}

// What failed together is tried again together, and is saved when the part answers
// again.
func TestWhatFailedTogetherIsTriedAgainTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &patchy{Engine: memlock.New(nil), silent: true}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		var held []*fencelock.Lock
		for i := range 500 {
			held = append(held, acquire(t, locks, fmt.Sprint("sick-", i)))
		}
		time.Sleep(35 * time.Minute)
		engine.fallSilent(false)
		time.Sleep(10 * hour)
		for _, l := range held {
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			_ = l.Release()
		}
		engine.mu.Lock()
		defer engine.mu.Unlock()
		if len(engine.batches) < 2 {
			t.Errorf("batches without an answer: %v, want several", engine.batches)
		}
		for _, n := range engine.batches {
			if n != len(held) {
				t.Fatalf("batches of %v, want all %d locks in each", engine.batches, len(held))
			}
		}
	})
}

// A call under way ends with the last of its locks, and nobody is told of failed
// renewals; renewals that wait for room are not sent any more.
func TestARenewalEndsWithItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &patchy{Engine: memlock.New(nil), silent: true}
		var told strings.Builder
		failed := 0
		locks := fencelock.New(engine, &fencelock.Config{
			Logger: slog.New(slog.NewTextHandler(&told, nil)),
			Tracer: &fencelock.Tracer{RenewEnd: func(_ context.Context, d fencelock.TraceRenewEnd) { failed += d.Failed }},
		}).With(fencelock.Options{TTL: hour})
		const calls = 8 // at once
		var held []*fencelock.Lock
		for i := range 1000*calls + 500 {
			held = append(held, acquire(t, locks, fmt.Sprint("sick-", i)))
		}
		time.Sleep(hour/3 + hour/16)
		if n := engine.flights(); n != calls {
			t.Fatalf("%d calls are under way, want %d", n, calls)
		}
		for i, l := range held {
			if i == len(held)-1 {
				synctest.Wait()
				if n := engine.flights(); n != 1 {
					t.Errorf("%d calls are under way for the last lock", n)
				}
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		// One more goes out if the locks of a call have ended while those that wait for it have not.
		if n := engine.flights(); n != 0 || engine.cut != len(engine.batches) || engine.cut < calls || engine.cut > calls+1 {
			t.Errorf("%d calls are under way, %d of %d were cut short, want all", n, engine.cut, len(engine.batches))
		}
		if failed > 0 || told.Len() > 0 {
			t.Errorf("the tracer was told of %d failures, and the logger: %.300s", failed, &told)
		}
	})
}

// A call takes no longer than its shortest lease allows, so a long one is not sent
// together with it.
func TestAShortLeaseDoesNotHurryALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 32 * hour
		engine := &hesitant{Engine: memlock.New(nil), takes: 6 * time.Minute}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
		lock := acquire(t, locks, "long")
		brief := locks.With(fencelock.Options{TTL: 32 * time.Minute}) // renewals may take a sixth, which is too short
		for i := range 14 * 60 {
			acquire(t, brief, fmt.Sprint("brief-", i)) // so that one comes due each minute
			time.Sleep(time.Minute)
		}
		time.Sleep(hour)
		engine.mu.Lock()
		if engine.renewed["long"] != 1 || engine.failed["long"] != 0 || len(engine.failed) == 0 {
			t.Errorf("the long lease was renewed %d times and failed %d times, %d short ones failed",
				engine.renewed["long"], engine.failed["long"], len(engine.failed))
		}
		engine.mu.Unlock()
		_ = lock.Release()
		time.Sleep(hour)
	})
}

// hesitant is an engine that takes its time for each call of Renew.
type hesitant struct {
	driver.Engine
	takes time.Duration

	mu              sync.Mutex // guards renewed, failed
	renewed, failed map[string]int
}

func (s *hesitant) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	select {
	case <-time.After(s.takes):
		errs = s.Engine.Renew(ctx, leases)
	case <-ctx.Done():
		for i := range errs {
			errs[i] = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed == nil {
		s.renewed, s.failed = map[string]int{}, map[string]int{}
	}
	for i, l := range leases {
		if errs[i] == nil {
			s.renewed[l.Name]++
		} else {
			s.failed[l.Name]++
		}
	}
	return errs
}
