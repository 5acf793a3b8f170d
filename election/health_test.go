package election_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{ShutdownTimeout: time.Minute})
		probe := func(code int, body string) {
			t.Helper()
			synctest.Wait()
			w := httptest.NewRecorder()
			p.Health(5*time.Second).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
			if got := strings.TrimSpace(w.Body.String()); w.Code != code || !strings.HasPrefix(got, body) {
				t.Errorf("got %d %q, want %d %q", w.Code, got, code, body)
			}
		}
		probe(200, "idle")
		r := p.run(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(20 * time.Second)
			return nil
		})
		probe(200, "leading")
		store.Lose(name)
		probe(200, "stopping")
		time.Sleep(6 * time.Second)
		probe(503, `the leader's work still runs: "billing", 6s after its end`)
		time.Sleep(20 * time.Second)
		probe(200, "leading") // again
		r.cancel(nil)
		time.Sleep(10 * time.Second)
		probe(200, "stopping") // slowly, but the name is still its own
		store.Lose(name)
		time.Sleep(time.Second)
		probe(200, "stopping")
		<-r.done
		probe(200, "idle")
	})
}

// Work that Run has given up keeps the name: such a process is not healthy, though
// its lock stands.
func TestStuckWorkIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{ShutdownTimeout: time.Second})
		release := make(chan struct{})
		r := p.run(func(context.Context) error {
			<-release
			return nil
		})
		r.cancel(nil)
		want(t, "Run", <-r.done, election.ErrStuck)
		want(t, "Check", p.Check(time.Hour), election.ErrStuck)
		close(release)
		synctest.Wait()
		if err := p.Check(time.Hour); err != nil {
			t.Errorf("the work has returned: %v", err)
		}
	})
}

// A standby is ready while the engine answers.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		leader, standby := start(store, election.Config{}), start(store.Client(), election.Config{})
		want(t, "idle", leader.Ready(t.Context()), fencelock.ErrUnavailable)
		one := leader.run(obey)
		two := standby.run(obey)
		for who, p := range map[string]*process{"leader": leader, "standby": standby} {
			if err := p.Ready(t.Context()); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		standby.engine.Refuse(errors.New("refused"))
		want(t, "standby without an engine", standby.Ready(t.Context()), fencelock.ErrUnavailable)
		standby.engine.Refuse(nil)
		one.cancel(nil)
		two.cancel(nil)
		<-one.done
		<-two.done
	})
}

// Work that has returned is not stuck, however long the engine is silent about the lock that was
// lost.
func TestASilentEngineIsNoStuckWork(t *testing.T) {
	for what, begin := range map[string]func(p *process) (stop func()){
		"run": func(p *process) func() {
			r := p.run(obey)
			return func() { r.cancel(nil); <-r.done }
		},
		"terms": func(p *process) func() {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { // ends with cancel
				defer close(done)
				for term, err := range p.Terms(ctx) {
					if err == nil {
						<-term.Context().Done()
					}
				}
			}()
			synctest.Wait()
			return func() { cancel(); <-done }
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New(nil)
				p := start(store, election.Config{})
				stop := begin(p)
				p.engine.Freeze()
				<-p.Term().Context().Done()
				time.Sleep(3 * time.Second)
				if err := p.Check(time.Second); err != nil {
					t.Errorf("%v: %v", p.State(), err)
				}
				p.engine.Thaw()
				stop()
			})
		})
	}
}

// A candidate whose Run has given up does not campaign.
func TestStuckWorkIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{ShutdownTimeout: time.Second})
		release := make(chan struct{})
		r := p.run(func(context.Context) error { <-release; return nil })
		store.Lose(name)
		want(t, "Run", <-r.done, election.ErrStuck)
		want(t, "Ready", p.Ready(t.Context()), fencelock.ErrUnavailable)
		close(release)
		synctest.Wait()
	})
}
