package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

func TestTermsAreALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{})
		var last int64
		round := 0
		for term, err := range p.Terms(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			token, _ := fencelock.TokenFrom(term.Context())
			if term.Token() <= last || token != term.Token() || p.Term() != term {
				t.Errorf("round %d: term %d after %d", round, term.Token(), last)
			}
			last = term.Token()
			if round++; round == 3 {
				break
			}
			store.Lose(name)
			<-term.Context().Done()
			synctest.Wait()
			want(t, "Err", term.Err(), fencelock.ErrLost)
		}
		if round != 3 || p.Term() != nil || p.State() != election.Idle {
			t.Errorf("%d rounds, %v", round, p.State())
		}
		if leader, err := election.Current(t.Context(), p.locks, name); err != nil || leader.Term != 0 {
			t.Errorf("break left %+v, %v", leader, err)
		}
		synctest.Wait()
		if got := p.changes.String(); got != "campaigning leading stopping campaigning leading stopping campaigning leading idle" {
			t.Error(got)
		}
	})
}

func TestTermsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("deployment")
		time.AfterFunc(time.Hour, func() { cancel(reason) })
		var errs []error
		for term, err := range p.Terms(ctx) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			<-term.Context().Done()
			want(t, "the term's cause", context.Cause(term.Context()), reason)
			want(t, "Err", term.Err(), reason)
		}
		if len(errs) != 1 {
			t.Fatalf("yielded %v", errs)
		}
		want(t, "Terms", errs[0], reason)
	})
}

// A body that panics gives the name back on its way.
func TestTermsSurviveAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		func() {
			defer func() { _ = recover() }()
			for range p.Terms(t.Context()) {
				panic("in office")
			}
		}()
		if p.State() != election.Idle || p.Term() != nil {
			t.Errorf("%v", p.State())
		}
	})
}

// What the work leaves running is told to end before the next leader begins.
func TestTheContextEndsWithTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		var left context.Context
		err := p.Run(t.Context(), func(ctx context.Context) error { left = ctx; return nil })
		if err != nil || left.Err() == nil {
			t.Errorf("%v, %v", err, left.Err())
		}
	})
}

// TestWorkReleasesItsLock: the term ends with it, and the next one begins at once if there is no
// pause.
func TestWorkReleasesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{ResignPause: -1})
		begun, last := time.Now(), int64(0)
		for term, err := range p.Terms(t.Context()) {
			if err != nil || term.Token() <= last {
				t.Fatalf("a term after %d: %v", last, err)
			}
			if last != 0 {
				break
			}
			last = term.Token()
			want(t, "the release", term.Lock().Release(), nil)
			<-term.Context().Done()
			want(t, "the term", term.Err(), fencelock.ErrNotHeld)
		}
		if took := time.Since(begun); took != 0 || p.State() != election.Idle {
			t.Errorf("two terms took %v, and the candidate is %v", took, p.State())
		}
	})
}
