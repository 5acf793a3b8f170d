package election_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

func TestRunReturnsWhatTheWorkReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		if err := p.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		broken := errors.New("broken")
		want(t, "Run", p.Run(t.Context(), func(context.Context) error { return broken }), broken)
		if s, _ := p.locks.Status(t.Context(), name); len(s.Holders) > 0 {
			t.Errorf("left behind: %+v", s)
		}
		synctest.Wait()
		if got := p.changes.String(); got != "campaigning leading idle campaigning leading idle" {
			t.Error(got)
		}
	})
}

// A leader that stops is followed only after its work has returned, and at once.
func TestCleanStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		th := &throne{t: t}
		a, b := start(store, election.Config{}), start(store.Client(), election.Config{})
		reason := errors.New("deployment")
		first := a.run(func(ctx context.Context) error {
			th.sit(ctx)
			defer th.rise(ctx)
			<-ctx.Done()
			time.Sleep(25 * time.Second) // longer than the TTL: the lock is kept meanwhile
			return context.Cause(ctx)
		})
		second := b.run(th.rule)
		wantState(t, a, election.Leading)
		wantState(t, b, election.Campaigning)
		first.cancel(reason)
		wantState(t, a, election.Stopping)
		want(t, "a", <-first.done, reason)
		wantState(t, b, election.Leading)
		wantState(t, a, election.Idle)
		second.cancel(nil)
		want(t, "b", <-second.done, context.Canceled)
	})
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store, election.Config{}), start(store.Client(), election.Config{})
		first := a.run(obey)
		second := b.run(obey)
		second.cancel(errors.New("enough"))
		want(t, "b", <-second.done, context.Canceled, fencelock.ErrHeld)
		first.cancel(nil)
		<-first.done
	})
}

// A leader that loses its term stops before the next one begins, and comes back.
func TestLossAndReturn(t *testing.T) {
	for what, lose := range map[string]func(p *process){
		"broken":      func(p *process) { _, _ = p.engine.Client().Break(context.Background(), name, "test") },
		"forgotten":   func(p *process) { p.engine.Lose(name) },
		"frozen":      func(p *process) { p.engine.Freeze(); time.Sleep(ttl); p.engine.Thaw() },
		"unreachable": func(p *process) { p.engine.Refuse(errors.New("cut")); time.Sleep(ttl); p.engine.Refuse(nil) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New(nil)
				th := &throne{t: t, sudden: what == "broken" || what == "forgotten"}
				a, b := start(store, election.Config{}), start(store.Client(), election.Config{})
				var cause error
				first := a.run(func(ctx context.Context) error {
					defer func() { cause = context.Cause(ctx) }()
					return th.rule(ctx)
				})
				second := b.run(th.rule)
				lose(a)
				wantState(t, b, election.Leading)
				want(t, "the cause of a's end", cause, fencelock.ErrLost)
				time.Sleep(longestPause)
				wantState(t, a, election.Campaigning)
				second.cancel(nil)
				<-second.done
				wantState(t, a, election.Leading)
				first.cancel(nil)
				<-first.done
				if th.count() != 3 {
					t.Errorf("%d terms, want 3", th.count())
				}
			})
		})
	}
}

// longestPause is longer than any pause between two campaigns: 5 s, and its jitter.
const longestPause = 8 * time.Second

func TestKilledLeaderIsFollowedWithinTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store.Client(), election.Config{}), start(store.Client(), election.Config{})
		first, second := a.run(obey), b.run(obey)
		a.engine.Kill()
		time.Sleep(ttl)
		wantState(t, b, election.Leading)
		first.cancel(nil)
		want(t, "a", <-first.done, context.Canceled)
		second.cancel(nil)
		<-second.done
	})
}

func TestResignLetsAnotherLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		a, b := start(store, election.Config{}), start(store.Client(), election.Config{})
		th := &throne{t: t}
		if a.Resign() {
			t.Error("resigned without a term")
		}
		first := a.run(func(ctx context.Context) error {
			err := th.rule(ctx)
			if cause := context.Cause(ctx); errors.Is(cause, election.ErrResigned) {
				return errors.New("a slip on the way out") // logged; the campaign goes on
			}
			return err
		})
		second := b.run(th.rule)
		if !a.Resign() || a.Term() != nil {
			t.Error("did not resign")
		}
		wantState(t, b, election.Leading)
		time.Sleep(500 * time.Millisecond)
		if !b.Resign() {
			t.Error("did not resign")
		}
		time.Sleep(500 * time.Millisecond)
		wantState(t, a, election.Leading)
		second.cancel(nil)
		first.cancel(nil)
		<-second.done
		want(t, "a", <-first.done, context.Canceled)
	})
}

func TestWorkResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{ResignPause: time.Minute})
		begun, terms := time.Now(), 0
		err := p.Run(t.Context(), func(context.Context) error {
			if terms++; terms < 3 {
				return election.ErrResigned
			}
			return nil
		})
		if err != nil || terms != 3 || time.Since(begun) != 2*time.Minute {
			t.Errorf("%d terms in %v, %v", terms, time.Since(begun), err)
		}
	})
}

// Work that ignores its context is reported, and never runs twice here.
func TestStuckWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{ShutdownTimeout: 3 * time.Second})
		leave := make(chan struct{})
		r := p.run(func(context.Context) error { <-leave; return nil })
		store.Lose(name)
		lost := time.Now()
		want(t, "Run", <-r.done, election.ErrStuck, fencelock.ErrLost)
		if took := time.Since(lost); took != 3*time.Second {
			t.Errorf("gave up after %v", took)
		}
		want(t, "Run while the old work runs", p.Run(t.Context(), obey), election.ErrStuck)
		want(t, "Check", p.Check(time.Second), election.ErrStuck, fencelock.ErrLost)
		wantState(t, p, election.Stopping)
		close(leave)
		wantState(t, p, election.Idle)
		if err := p.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("Run afterwards: %v", err)
		}
	})
}

// An engine that is slow to take the name back is not work that is stuck.
func TestASlowReleaseIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{ShutdownTimeout: time.Second})
		r := p.run(obey)
		p.engine.Freeze()
		time.AfterFunc(4*time.Second, p.engine.Thaw)
		r.cancel(nil)
		want(t, "Run", <-r.done, context.Canceled)
	})
}

// Work that outlives a canceled context keeps the name until it returns.
func TestStuckWorkKeepsTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{ShutdownTimeout: time.Second})
		leave := make(chan struct{})
		r := p.run(func(context.Context) error { <-leave; return nil })
		r.cancel(nil)
		want(t, "Run", <-r.done, election.ErrStuck, context.Canceled)
		time.Sleep(10 * ttl)
		if leader, err := election.Current(t.Context(), p.locks, name); err != nil || leader.Term == 0 {
			t.Errorf("%+v, %v", leader, err)
		}
		close(leave)
		synctest.Wait()
		if leader, err := election.Current(t.Context(), p.locks, name); err != nil || leader.Term != 0 {
			t.Errorf("%+v, %v", leader, err)
		}
	})
}

func TestWorkThatNeverStopsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{ShutdownTimeout: -1})
		r := p.run(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(10 * time.Minute)
			return nil
		})
		r.cancel(nil)
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
}

func TestWorkThatExitsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		err := p.Run(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		if err == nil || p.State() != election.Idle {
			t.Errorf("%v, %v", err, p.State())
		}
	})
}

func TestErrorsThatDoNotPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := fencelock.New(memlock.New(nil), nil)
		want(t, "no name", election.Run(t.Context(), locks, "", obey), fencelock.ErrInvalid)
		p := start(memlock.New(nil), election.Config{})
		r := p.run(obey)
		want(t, "twice", p.Run(t.Context(), obey), fencelock.ErrInvalid)
		for _, err := range p.Terms(t.Context()) {
			want(t, "Terms beside Run", err, fencelock.ErrInvalid)
		}
		r.cancel(nil)
		<-r.done

		p = start(memlock.New(nil), election.Config{})
		p.engine.Refuse(fencelock.ErrConfig)
		want(t, "a refused login", p.Run(t.Context(), obey), fencelock.ErrConfig)
	})
}

// TestGiveUp: the program decides after each failure that may pass, and about no other.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := start(memlock.New(nil), election.Config{GiveUp: func(err error) bool {
			want(t, "the failure", err, fencelock.ErrUnavailable)
			asked++
			return asked == 3
		}})
		p.engine.Refuse(errors.New("no route"))
		want(t, "the third failure", p.Run(t.Context(), obey), fencelock.ErrUnavailable)
		for _, final := range []error{fencelock.ErrInvalid, fencelock.ErrUnsupported, fencelock.ErrConfig} {
			p.engine.Refuse(final)
			for _, err := range p.Terms(t.Context()) {
				want(t, "an error that does not pass", err, final)
			}
		}
		if asked != 3 || p.State() != election.Idle {
			t.Errorf("GiveUp was called %d times, and the candidate is %v", asked, p.State())
		}
	})
}

func TestCampaignRidesOutAnEngineThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(memlock.New(nil), election.Config{})
		p.engine.Refuse(errors.New("no route"))
		r := p.run(obey)
		time.Sleep(time.Hour)
		wantState(t, p, election.Campaigning)
		p.engine.Refuse(nil)
		time.Sleep(longestPause)
		wantState(t, p, election.Leading)
		r.cancel(nil)
		<-r.done
	})
}

func TestAWaitLimitDoesNotEndTheCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		holder, err := fencelock.New(store, nil).Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { _ = holder.Release() })
		locks := fencelock.New(store.Client(), nil).With(fencelock.Options{Wait: time.Second})
		if err := election.Run(t.Context(), locks, name, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// A candidate keeps its place in the queue, whatever the wait limit of its Locker.
func TestAWaitLimitCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		holder, err := fencelock.New(store, nil).Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		limited := fencelock.New(store.Client(), nil).With(fencelock.Options{Wait: time.Second})
		led := make(chan struct{})
		go func() { // ends when it has led
			defer close(led)
			if err := election.Run(t.Context(), limited, name, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		second := start(store.Client(), election.Config{})
		r := second.run(obey)
		time.Sleep(10 * time.Second)
		_ = holder.Release()
		time.Sleep(time.Millisecond)
		select {
		case <-led:
		default:
			t.Error("who came later leads before it")
		}
		r.cancel(nil)
		<-r.done
		<-led
	})
}

// Kills, freezes and cuts at random: never two leaders, and always one again.
func TestNeverTwoLeaders(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 6))
			store := memlock.New(nil)
			th := &throne{t: t}
			var all []*process
			var runs []*running
			for range 5 {
				p := start(store.Client(), election.Config{})
				all, runs = append(all, p), append(runs, p.run(th.rule))
			}
			for range 100 {
				p := all[rnd.IntN(len(all))]
				if i := slices.IndexFunc(all, func(p *process) bool { return p.Term() != nil }); i >= 0 && rnd.IntN(2) == 0 {
					p = all[i]
				}
				switch rnd.IntN(4) {
				case 0:
					p.engine.Freeze()
					time.Sleep(time.Duration(rnd.IntN(20)) * time.Second)
					p.engine.Thaw()
					synctest.Wait()
				case 1:
					p.engine.Refuse(errors.New("rehearsal"))
					time.Sleep(time.Duration(rnd.IntN(20)) * time.Second)
					p.engine.Refuse(nil)
				case 2:
					p.Resign()
				default:
					store.Restart()
					time.Sleep(time.Second)
				}
			}
			time.Sleep(2 * ttl)
			if leader, err := election.Current(t.Context(), fencelock.New(store, nil), name); err != nil || leader.Term == 0 || th.count() < 20 {
				t.Errorf("seed %d: in the end %+v leads, after %d terms, %v", seed, leader, th.count(), err)
			}
			for i, r := range runs {
				r.cancel(nil)
				want(t, "the end of a candidate", <-r.done, context.Canceled)
				wantState(t, all[i], election.Idle)
			}
		})
	}
}

// A panic in the work reaches whoever called Run, and the next one leads.
func TestAPanicReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{})
		boom := errors.New("boom")
		var got any
		func() {
			defer func() { got = recover() }()
			_ = p.Run(t.Context(), func(context.Context) error { panic(boom) })
		}()
		panicked, ok := got.(error)
		if !ok || !errors.Is(panicked, boom) || !strings.Contains(panicked.Error(), "TestAPanicReachesTheCaller") {
			t.Fatalf("got %v, want an error that is boom and says where", got)
		}
		if err := start(store, election.Config{}).Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("after the panic: %v", err)
		}
		if err := p.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("the same candidate again: %v", err)
		}
	})
}

// A logger that panics, where somebody recovers, leaves a candidate that can run again.
func TestALoggerThatPanics(t *testing.T) {
	for what, c := range map[string]struct {
		refuse error // of the engine
		work   func(p *process) error
	}{
		"in a campaign": {errors.New("no route"), nil},
		"after a term":  {nil, func(p *process) error { p.Resign(); return errors.New("a slip on the way out") }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(memlock.New(nil), election.Config{Logger: slog.New(angry{})})
				p.engine.Refuse(c.refuse)
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the logger was not called")
						}
					}()
					_ = p.Run(t.Context(), func(context.Context) error { return c.work(p) })
				}()
				p.engine.Refuse(nil)
				wantState(t, p, election.Idle)
				if err := p.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// angry is a log that panics.
type angry struct{ slog.Handler }

func (angry) Enabled(context.Context, slog.Level) bool  { return true }
func (angry) Handle(context.Context, slog.Record) error { panic("full") }

// The hook may block and call the candidate; it is called for everything, in order.
func TestOnChangeHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := memlock.New(nil), &log{}
		locks := fencelock.New(store, nil).With(fencelock.Options{TTL: ttl})
		var c *election.Candidate
		c = election.New(locks, name, &election.Config{OnChange: func(change election.Change) {
			time.Sleep(time.Minute)
			_ = c.State()
			seen.add("%v", change.State)
		}})
		began := time.Now()
		if err := c.Run(t.Context(), func(context.Context) error { return nil }); err != nil || time.Since(began) > 0 {
			t.Errorf("Run took %v: %v", time.Since(began), err)
		}
		time.Sleep(time.Hour)
		if got := seen.String(); got != "campaigning leading stopping idle" && got != "campaigning leading idle" {
			t.Errorf("heard %q", got)
		}
	})
}

// A hook that ends its goroutine, as testing.T.FailNow does, is called for what follows.
func TestOnChangeThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &log{}
		locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{TTL: ttl})
		c := election.New(locks, name, &election.Config{OnChange: func(change election.Change) {
			seen.add("%v", change.State)
			runtime.Goexit()
		}})
		for range 2 {
			if err := c.Run(t.Context(), func(context.Context) error { synctest.Wait(); return nil }); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := seen.String(); got != "campaigning leading idle campaigning leading idle" {
			t.Errorf("heard %q", got)
		}
	})
}

// Whatever a Locker's own options: one leads at a time, and the others wait.
func TestLockersWithOptions(t *testing.T) {
	for _, o := range []fencelock.Options{{Wait: time.Second}, {Shared: true}, {Shared: true, Limit: 3, Weight: 2}, {Limit: 3}} {
		synctest.Test(t, func(t *testing.T) {
			store, leading := memlock.New(nil), 0
			work := func(context.Context) error {
				if leading++; leading > 1 {
					t.Errorf("%+v: %d lead at once", o, leading)
				}
				time.Sleep(time.Minute)
				leading--
				return nil
			}
			done := make(chan error)
			for range 3 {
				locks := fencelock.New(store.Client(), nil).With(o)
				go func() { done <- election.Run(t.Context(), locks, name, work) }() // ends after its term
			}
			for range 3 {
				if err := <-done; err != nil {
					t.Errorf("%+v: %v", o, err)
				}
			}
		})
	}
}
