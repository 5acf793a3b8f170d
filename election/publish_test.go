package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// lead makes p lead, and returns its term, and a function that ends it.
func lead(t *testing.T, p *process) (*election.Term, func()) {
	t.Helper()
	r := p.run(obey)
	term := p.Term()
	if term == nil {
		t.Fatal("no term")
	}
	return term, func() { r.cancel(nil); <-r.done }
}

// wantValue fails the test unless the leader publishes value.
func wantValue(t *testing.T, locks *fencelock.Locker, value string) {
	t.Helper()
	leader, err := election.Current(t.Context(), locks, name)
	if err != nil || leader.Value != value {
		t.Errorf("the leader publishes %q, %v; want %q", leader.Value, err, value)
	}
}

// A leader changes what it publishes, for its term alone, and observers learn of it.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store.Client(), election.Config{Value: "a"}), start(store.Client(), election.Config{Value: "b"})
		term, resign := lead(t, a)
		wantValue(t, b.locks, "a")
		seen, stop := observe(b.locks)
		for _, value := range []string{"a2", "a3", ""} {
			if err := term.Publish(t.Context(), value); err != nil {
				t.Error(err)
			}
			wantValue(t, b.locks, value)
			time.Sleep(5*time.Second + time.Millisecond)
		}
		resign()
		want(t, "a term that has ended", term.Publish(t.Context(), "late"), fencelock.ErrNotHeld)
		time.Sleep(6 * time.Second)
		next, end := lead(t, b)
		wantValue(t, a.locks, "b")
		time.Sleep(5 * time.Second)
		if err := next.Publish(t.Context(), "b2"); err != nil {
			t.Error(err)
		}
		wantValue(t, a.locks, "b2")
		time.Sleep(5*time.Second + time.Millisecond)
		want(t, "Observe", stop(), context.Canceled)
		if got := seen.String(); got != "a a2 a3  nobody b b2" {
			t.Errorf("observed %q", got)
		}
		if got := next.Lock(); got.Name() != name || got.Token() != next.Token() {
			t.Errorf("the lock of term %d is %q, %d", next.Token(), got.Name(), got.Token())
		}
		end()
	})
}

// A term that was lost publishes nothing, and says so; a leader that resigns may.
func TestPublishAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store.Client(), election.Config{Value: "a"}), start(store.Client(), election.Config{Value: "b"})
		first := a.run(func(ctx context.Context) error {
			term := a.Term()
			<-ctx.Done()
			if context.Cause(ctx) == election.ErrResigned {
				want(t, "while it resigns", term.Publish(context.Background(), "a, draining"), nil)
				wantValue(t, b.locks, "a, draining")
			}
			return context.Cause(ctx)
		})
		a.Resign()
		time.Sleep(2 * time.Second)
		term := a.Term()
		a.engine.Refuse(fmt.Errorf("%w: cut", fencelock.ErrUnavailable))
		want(t, "an engine that is away", term.Publish(t.Context(), "lost"), fencelock.ErrUnavailable)
		time.Sleep(2 * ttl)
		want(t, "a lost term", term.Publish(t.Context(), "lost"), fencelock.ErrLost)
		first.cancel(nil)
		<-first.done
		_, end := lead(t, b)
		wantValue(t, b.locks, "b")
		end()
	})
}

// Calls of one term publish one after the other; what a later term has published stays.
func TestPublishAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a := start(store.Client(), election.Config{})
		term, end := lead(t, a)
		defer end()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() { want(t, "Publish", term.Publish(t.Context(), fmt.Sprint("value ", i)), nil) })
		}
		calls.Wait()
		if leader, err := election.Current(t.Context(), a.locks, name); err != nil || !strings.HasPrefix(leader.Value, "value ") {
			t.Errorf("%+v, %v", leader, err)
		}
		records, key := store.Records(), "election/"+name
		rec, err := records.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		later := fmt.Sprintf(`{"name":%q,"term":%d,"value":"later"}`, name, term.Token()+1)
		version, err := records.Swap(t.Context(), key, []byte(later), rec.Version, 0)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "an earlier term", term.Publish(t.Context(), "earlier"), fencelock.ErrConflict)
		wantValue(t, a.locks, "")
		if _, err := records.Swap(t.Context(), key, []byte("{}"), version, 0); err != nil {
			t.Fatal(err)
		}
		want(t, "a record of somebody else", term.Publish(t.Context(), "earlier"), fencelock.ErrConfig)
		_, err = election.Current(t.Context(), a.locks, name)
		want(t, "a record of somebody else", err, fencelock.ErrConfig)
	})
}
