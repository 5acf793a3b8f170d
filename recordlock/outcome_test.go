package recordlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

func contextFor(s scene, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), d)
}

// late is a Swap that the store executes long after its client has given it up.
type late struct {
	execute func() error
	taken   bool
}

// takeOne makes the next Swap late.
func (l *late) takeOne(from *link) {
	from.set(func(k *link) {
		k.swap = func(next func() error) error {
			if l.taken {
				return next()
			}
			l.taken, l.execute = true, next
			time.Sleep(2 * time.Second)
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
		}
	})
}

// A request is given up while the outcome of its Swap is unknown. The record is written once more,
// so that the store does not execute that Swap later: it would leave a holder that nobody knows.
func TestSecondWriteAfterAnUnknownOutcome(t *testing.T) {
	verdict.Is(t, "Records: a request arrives after its client gave up", verdict.Safe)
	for _, wait := range []bool{false, true} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("wait=%t used=%t", wait, used), func(t *testing.T) {
				play(t, true, func(s scene) {
					e, l := s.client()
					if used { // there is a record already
						s.ok(e.Release(s.Context(), lease(s.acquire(e, request()))))
					}
					var lost late
					lost.takeOne(l)
					ctx, cancel := contextFor(s, time.Second)
					defer cancel()
					req := request()
					req.Wait = wait
					if _, err := e.Acquire(ctx, req); !errors.Is(err, driver.ErrUnavailable) {
						t.Fatalf("got %v, want ErrUnavailable", err)
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if err := lost.execute(); !errors.Is(err, driver.ErrConflict) {
						t.Errorf("the late Swap: got %v, want ErrConflict", err)
					}
					other, _ := s.client()
					s.acquire(other, request())
				})
			})
		}
	}
}

// The outcome of the Swap of an Adopt is unknown, and the acquisition that it adopts ends before the next
// attempt, which is refused. The store does not execute the first Swap after that.
func TestSecondWriteAfterARefusal(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		holder, _ := s.client()
		req := request()
		req.TTL = time.Second
		g := s.acquire(holder, req)
		var lost late
		lost.takeOne(l) // for two seconds
		if _, err := e.Adopt(s.Context(), lease(g), req); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("got %v, want ErrNotHeld", err)
		}
		if err := lost.execute(); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("the late Swap: got %v, want ErrConflict", err)
		}
	})
}

// The store executes the first Swap of a name so late that the record of a later holder has expired.
// The client still waits, and finds itself in the record, with a token below that of the later one.
func TestFirstSwapArrivesLate(t *testing.T) {
	verdict.Is(t, "Records: a request arrives after its client gave up", verdict.Safe)
	play(t, true, func(s scene) {
		e, l := s.client()
		var lost late
		lost.takeOne(l)
		req := waiting()
		req.TTL = 2 * time.Hour // its lease is not over by then
		granted := make(chan int64, 1)
		go func() { granted <- s.acquire(e, req).Token }() // ends when it is granted
		time.Sleep(time.Second)
		l.set(func(l *link) { l.down = true }) // after the first read
		other, _ := s.client()
		theirs := s.acquire(other, request())
		s.ok(other.Release(s.Context(), lease(theirs)))
		time.Sleep(time.Hour)
		synctest.Wait()
		s.ok(lost.execute())
		l.set(func(l *link) { l.down = false })
		if token := <-granted; token <= theirs.Token {
			t.Errorf("token %d came after %d", token, theirs.Token)
		}
	})
}

// No token is issued while the store's clock cannot be read: it could be below earlier ones.
func TestNoTokenWithoutTheClock(t *testing.T) {
	play(t, true, func(s scene) {
		other, _ := s.client()
		s.ok(other.Release(s.Context(), lease(s.acquire(other, request()))))
		e, l := s.client()
		l.set(func(l *link) { l.blind = true })
		_, err := e.Acquire(s.Context(), request())
		verdict.Is(t, "Records: the store's clock cannot be read", verdict.Refused, verdict.OfError(err))
		l.set(func(l *link) { l.blind = false })
		s.acquire(e, request())
	})
}

// While the store's clock cannot be read, locks are renewed and released, although a request of the
// same process for the same name is not granted.
func TestRenewalsWithoutTheClock(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		req := waiting()
		req.Mode = driver.Shared
		g := s.acquire(e, req)
		l.set(func(l *link) { l.blind = true })
		ctx, cancel := contextFor(s, 5*time.Minute)
		defer cancel()
		refused := make(chan error, 1)
		for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(ttl / 3) {
			s.ok(e.Renew(s.Context(), []driver.Lease{lease(g)})[0])
			if since := time.Since(begun); since > 4*time.Minute && since < 4*time.Minute+ttl/3 { // the last reading is too old
				go func() { // ends with ctx
					_, err := e.Acquire(ctx, req)
					refused <- err
				}()
			}
		}
		if err := <-refused; !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		s.ok(e.Release(s.Context(), lease(g)))
	})
}

// While the store's clock cannot be read, a waiter whose place has expired does not take a new one. It
// asks for the clock from time to time, and then waits again.
func TestPlaceExpiresWithoutTheClock(t *testing.T) {
	play(t, true, func(s scene) {
		other, _ := s.client()
		req := request()
		req.TTL = time.Hour // no renewal removes the place
		held := s.acquire(other, req)
		e, l := s.client()
		granted := make(chan driver.Grant, 1)
		go func() { granted <- s.acquire(e, waiting()) }() // ends when it is granted
		time.Sleep(time.Second)
		l.set(func(l *link) {
			l.down, l.blind = true, true
			l.swap = func(func() error) error { return driver.ErrUnavailable }
		})
		time.Sleep(5 * time.Minute) // the place expires, and the last reading is too old
		l.set(func(l *link) { l.down, l.swap = false, nil })
		time.Sleep(time.Minute)
		l.set(func(l *link) { l.blind = false })
		time.Sleep(5 * time.Second)
		s.ok(other.Release(s.Context(), lease(held)))
		begun := time.Now()
		<-granted
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it was granted after %v", took)
		}
	})
}

// The store executes a Swap, and its answer is lost: the next read decides.
func TestLostAnswers(t *testing.T) {
	verdict.Is(t, "Records: an answer is lost", verdict.Safe)
	play(t, true, func(s scene) {
		e, l := s.client()
		lose := func() {
			lost := false
			l.set(func(l *link) {
				l.swap = func(next func() error) error {
					err := next()
					if lost || err != nil {
						return err
					}
					lost = true
					return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
				}
			})
		}
		lose()
		g := s.acquire(e, request())
		list, err := e.List(s.Context(), driver.Query{})
		if err != nil || len(list) != 1 || len(list[0].Holders) != 1 || list[0].Holders[0].Token != g.Token {
			t.Errorf("after a grant whose answer was lost: %+v, %v", list, err)
		}
		lose()
		s.ok(e.Renew(s.Context(), []driver.Lease{lease(g)})[0])
		lose()
		s.ok(e.Release(s.Context(), lease(g)))
		if err := e.Release(s.Context(), lease(g)); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("the second release: %v", err)
		}
	})
}

// The answer to an acquire is lost, and its caller gets the lock only with the next attempt. The
// minimum hold counts from then.
func TestMinimumHoldAfterALostAnswer(t *testing.T) {
	verdict.Is(t, "Records: an answer is lost", verdict.Safe)
	play(t, true, func(s scene) {
		e, l := s.client()
		lost := false
		l.set(func(l *link) {
			l.swap = func(next func() error) error {
				err := next()
				if lost || err != nil {
					return err
				}
				lost = true
				time.Sleep(4 * time.Second)
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
			}
		})
		req := request()
		req.MinHold = 6 * time.Second
		g := s.acquire(e, req)
		s.ok(e.Release(s.Context(), lease(g)))
		other, _ := s.client()
		s.acquire(other, waiting())
		if closed := time.Since(g.Sent); !lost || closed < req.MinHold || closed > req.MinHold+time.Second {
			t.Errorf("the name was closed for %v, want %v", closed, req.MinHold)
		}
	})
}

// The answer to a break is lost, and a waiter is granted before it is repeated. It keeps the lock, and its
// token is above that of the break.
func TestRepeatedBreakSparesTheSuccessor(t *testing.T) {
	verdict.Is(t, "Records: an answer is lost", verdict.Safe)
	play(t, true, func(s scene) {
		holder, _ := s.client()
		old := s.acquire(holder, request())
		next, _ := s.client()
		granted := make(chan driver.Grant)
		go func() { granted <- s.acquire(next, waiting()) }()
		synctest.Wait()
		breaker, l := s.client()
		var g driver.Grant
		l.set(func(l *link) {
			l.swap = func(execute func() error) error {
				if err := execute(); err != nil || g.Token > 0 {
					return err
				}
				g = <-granted
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
			}
		})
		token, err := breaker.Break(s.Context(), name, "stuck")
		if err != nil || token <= old.Token || token >= g.Token {
			t.Errorf("break: token %d after %d, before %d, %v", token, old.Token, g.Token, err)
		}
		s.ok(next.Renew(s.Context(), []driver.Lease{lease(g)})[0])
	})
}

// The outcome of a break is unknown, and the holder has left before it is repeated. The store had not executed it,
// and does not do so later.
func TestRepeatedBreakFindsNothing(t *testing.T) {
	play(t, true, func(s scene) {
		holder, _ := s.client()
		old := s.acquire(holder, request())
		breaker, l := s.client()
		var lost late
		lost.takeOne(l) // for two seconds
		result := make(chan error, 1)
		go func() { // ends with its answer
			_, err := breaker.Break(s.Context(), name, "stuck")
			result <- err
		}()
		time.Sleep(time.Second)
		s.ok(holder.Release(s.Context(), lease(old)))
		g := s.acquire(holder, request())
		if err := <-result; !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if err := lost.execute(); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("the late Swap: got %v, want ErrConflict", err)
		}
		s.ok(holder.Renew(s.Context(), []driver.Lease{lease(g)})[0])
	})
}

// Tokens rise although the record was deleted, or has expired because nobody used the name.
func TestTokensOutliveTheRecord(t *testing.T) {
	play(t, true, func(s scene) {
		e, _ := s.client()
		last := int64(0)
		for _, end := range []func(){
			func() {},
			func() { // delete it by hand
				rec, err := s.store.Records().Get(s.Context(), key)
				s.ok(err)
				_, err = s.store.Records().Swap(s.Context(), key, nil, rec.Version, 1)
				s.ok(err)
				time.Sleep(time.Millisecond)
			},
			func() {
				time.Sleep(time.Hour)
				if rec, err := s.store.Records().Get(s.Context(), key); err != nil || rec.Version != "" {
					t.Errorf("an hour after its last use there is a record %q, %v", rec.Value, err)
				}
			},
		} {
			g := s.acquire(e, request())
			if g.Token <= last {
				t.Errorf("token %d came after %d", g.Token, last)
			}
			last = g.Token
			s.ok(e.Release(s.Context(), lease(g)))
			end()
		}
	})
}

// More requests wait than a record has places for. All are granted, and the record stays small.
func TestManyWaiters(t *testing.T) {
	const clients, each = 3, 60
	play(t, true, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		granted := make(chan int64, clients*each)
		var all sync.WaitGroup
		defer all.Wait()
		for range clients {
			e, _ := s.client()
			for range each {
				all.Go(func() { // ends when it is granted
					g := s.acquire(e, waiting())
					granted <- g.Token
					s.ok(e.Release(s.Context(), lease(g)))
				})
			}
		}
		time.Sleep(3 * time.Second)
		list, err := holder.List(s.Context(), driver.Query{})
		if err != nil || len(list) != 1 || len(list[0].Waiters) != 128 {
			t.Errorf("the list: %+v, %v", list, err)
		}
		s.ok(holder.Release(s.Context(), lease(g)))
		last := g.Token
		for range clients * each {
			token := <-granted
			if token <= last {
				t.Errorf("token %d came after %d", token, last)
			}
			last = token
		}
	})
}

// A cached record is enough to grant, but not to refuse.
func TestCachedRecord(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		other, _ := s.client()
		s.ok(e.Release(s.Context(), lease(s.acquire(e, request()))))
		g := s.acquire(e, request())
		before := l.now()
		l.set(func(l *link) { before.swaps = l.swaps })
		s.ok(e.Release(s.Context(), lease(g)))
		g = s.acquire(e, request())
		l.set(func(l *link) {
			if n := l.swaps - before.swaps; n != 2 {
				t.Errorf("a release and an acquire took %d swaps", n)
			}
		})
		if _, err := e.Break(s.Context(), name, "a test"); err != nil {
			t.Fatal(err)
		}
		theirs := s.acquire(other, request())
		verdict.Is(t, "Records: break while the holder works", verdict.Guarded, verdict.OfHolders(nil, g.Token, theirs.Token))
		if _, err := e.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		s.ok(other.Release(s.Context(), lease(theirs)))
		s.acquire(e, request())
		if err := e.Release(s.Context(), lease(g)); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("releasing what was broken: %v", err)
		}
	})
}

// A request that arrives while a read is on its way is not refused by what that shows: the name may
// have been released before the request was made.
func TestRefusalsAreReadAgain(t *testing.T) {
	play(t, true, func(s scene) {
		holder, _ := s.client()
		g := s.acquire(holder, request())
		e, l := s.client()
		if _, err := e.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("got %v, want ErrHeld", err)
		}
		l.set(func(l *link) { l.after = time.Second })
		refused := make(chan error, 1)
		go func() { // ends when it is refused
			_, err := e.Acquire(s.Context(), request())
			refused <- err
		}()
		time.Sleep(500 * time.Millisecond) // the store has answered that request
		s.ok(holder.Release(s.Context(), lease(g)))
		_, err := e.Acquire(s.Context(), request())
		if first := <-refused; (err == nil) == (first == nil) {
			t.Errorf("got %v and %v, want one grant", first, err)
		}
	})
}

// A record that this version does not understand is refused and not overwritten.
func TestForeignRecords(t *testing.T) {
	for _, value := range []string{"{", "{}", "null", `{"format":1}`, `{"format":2}`, `{"format":1,"name":"another"}`} {
		play(t, true, func(s scene) {
			version, err := s.store.Records().Swap(s.Context(), key, []byte(value), "", 0)
			s.ok(err)
			e, _ := s.client()
			_, err = e.Acquire(s.Context(), waiting())
			if !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%s: got %v, want ErrConfig", value, err)
			}
			verdict.Is(t, "Records: a record is damaged, or a newer version of fencelock has written it", verdict.Refused, verdict.OfError(err))
			if rec, err := s.store.Records().Get(s.Context(), key); err != nil || rec.Version != version {
				t.Errorf("%s was replaced by %q, %v", value, rec.Value, err)
			}
		})
	}
}

// The context of a request ends at the moment of its grant. When Acquire returns, nothing is left.
func TestMissedGrantIsReleased(t *testing.T) {
	play(t, true, func(s scene) {
		const slow = 100 * time.Millisecond
		other, _ := s.client()
		missed := 0
		for range 100 {
			e, l := s.client()
			l.set(func(l *link) { l.after = slow })
			ctx, cancel := contextFor(s, 2*slow) // a read and a Swap
			g, err := e.Acquire(ctx, request())
			cancel()
			if err == nil {
				s.ok(e.Release(s.Context(), lease(g)))
				continue
			}
			missed++
			if list, err := other.List(s.Context(), driver.Query{}); err != nil || len(list) > 0 {
				t.Fatalf("after a request whose context has ended: %+v, %v", list, err)
			}
		}
		if missed == 0 {
			t.Error("no grant was missed")
		}
	})
}

// A store refuses a record that has become too large. The request that made it so fails. Those that
// the process has sent together with it do not.
func TestTooLargeRecord(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		shared := request()
		shared.Mode = driver.Shared
		first, second := s.acquire(e, shared), s.acquire(e, shared)
		l.set(func(l *link) { l.most, l.before = 1200, time.Second })
		answers := make(chan error, 2)
		go func() { answers <- e.Renew(s.Context(), []driver.Lease{lease(first)})[0] }() // ends when it is renewed
		synctest.Wait()                                                                  // while that is on its way, the next two requests are collected
		go func() { answers <- e.Release(s.Context(), lease(second)) }()                 // ends when it is released
		large := shared
		large.Note = strings.Repeat("n", 1000)
		if _, err := e.Acquire(s.Context(), large); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		s.ok(<-answers)
		s.ok(<-answers)
		l.set(func(l *link) { l.most, l.before = 0, 0 })
		s.ok(e.Release(s.Context(), lease(first)))
		s.acquire(e, request())
	})
}

// A waiter's context ends while the Swap that grants the name is on its way, or its answer, or when the
// grant has just arrived. The holder leaves, and its minimum hold ends with it: nobody has held the name.
func TestMissedGrantEndsItsMinimumHold(t *testing.T) {
	for _, when := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second} {
		t.Run(when.String(), func(t *testing.T) {
			play(t, true, func(s scene) {
				holder, _ := s.client()
				g := s.acquire(holder, request())
				e, l := s.client()
				req := waiting()
				req.MinHold = time.Minute
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				granting := false
				l.set(func(l *link) {
					l.swap = func(next func() error) error {
						if list, err := holder.List(s.Context(), driver.Query{}); err != nil || len(list) > 0 && len(list[0].Holders) > 0 || granting {
							return next()
						}
						granting = true
						time.AfterFunc(when, cancel)
						time.Sleep(time.Second)
						err := next()
						time.Sleep(time.Second)
						return err
					}
				})
				answer := make(chan error, 1)
				go func() { // ends with ctx
					_, err := e.Acquire(ctx, req)
					answer <- err
				}()
				time.Sleep(time.Second)
				s.ok(holder.Release(s.Context(), lease(g)))
				switch err := <-answer; {
				case err == nil && when == 2*time.Second:
					return // the grant was first
				case !errors.Is(err, context.Canceled):
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				other, _ := s.client()
				s.acquire(other, request())
			})
		})
	}
}

// A record is full before it has the length that a store refuses. Then requests to acquire are refused,
// and all others fit, also those that make it longer.
func TestFullRecord(t *testing.T) {
	play(t, true, func(s scene) {
		e, _ := s.client()
		req := request()
		req.Mode, req.Note = driver.Shared, strings.Repeat("n", 1024)
		var grants []driver.Grant
		var err error
		for err == nil {
			var g driver.Grant
			if g, err = e.Acquire(s.Context(), req); err == nil {
				grants = append(grants, g)
			}
		}
		if !errors.Is(err, driver.ErrInvalid) || len(grants) < 100 {
			t.Fatalf("after %d grants: %v", len(grants), err)
		}
		rec, err := s.store.Records().Get(s.Context(), key)
		if s.ok(err); len(rec.Value) > 216<<10 {
			t.Errorf("the record has %d bytes", len(rec.Value))
		}
		if _, err := e.BreakOwner(s.Context(), name, grants[0].Owner, strings.Repeat("<", 1024)); err != nil {
			t.Errorf("break: %v", err)
		}
		var leases []driver.Lease
		for _, g := range grants[1:] {
			leases = append(leases, lease(g))
		}
		for _, err := range e.Renew(s.Context(), leases) {
			s.ok(err)
		}
		if list, err := e.List(s.Context(), driver.Query{}); err != nil || len(list[0].Holders) != len(leases) {
			t.Errorf("%d holders, %v", len(list[0].Holders), err)
		}
		for _, l := range leases[:10] { // they are shorter than the reason
			s.ok(e.Release(s.Context(), l))
		}
		s.acquire(e, req)
	})
}

// A request that waits for a name whose record is full has no place until there is room.
func TestWaiterOfAFullRecord(t *testing.T) {
	play(t, true, func(s scene) {
		e, _ := s.client()
		req := request()
		req.TTL, req.Mode, req.Note = time.Hour, driver.Shared, strings.Repeat("n", 1024)
		var leases []driver.Lease
		for g, err := e.Acquire(s.Context(), req); err == nil; g, err = e.Acquire(s.Context(), req) {
			leases = append(leases, lease(g))
		}
		granted := make(chan driver.Grant, 1)
		places := make(chan int, 1)
		other := waiting()
		other.Note, other.OnWait = req.Note, func(w driver.WaitInfo) { places <- w.Position }
		go func() { granted <- s.acquire(e, other) }() // ends when it is granted
		if place := <-places; place != 0 {
			t.Errorf("it has place %d", place)
		}
		for _, l := range leases {
			s.ok(e.Release(s.Context(), l))
		}
		<-granted
	})
}

// A request that found itself in a record that others have filled in the meantime is granted.
func TestFullRecordAfterALostAnswer(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		other, _ := s.client()
		req := request()
		req.Mode, req.Note = driver.Shared, strings.Repeat("n", 1024)
		l.set(func(l *link) {
			l.swap = func(next func() error) error {
				if err := next(); err != nil {
					return err
				}
				var err error
				for err == nil {
					_, err = other.Acquire(s.Context(), req)
				}
				l.set(func(l *link) { l.swap = nil })
				return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
			}
		})
		g := s.acquire(e, req)
		s.ok(e.Release(s.Context(), lease(g)))
	})
}

// loseAnswer makes the store execute the next Swap, and then cuts the connection off for a while.
func (l *link) loseAnswer(outage time.Duration) {
	l.set(func(l *link) {
		l.swap = func(next func() error) error {
			_ = next()
			down := time.Now().Add(outage)
			l.set(func(l *link) {
				l.down = true
				l.swap = func(next func() error) error {
					if time.Now().Before(down) {
						return driver.ErrUnavailable
					}
					return next()
				}
			})
			time.AfterFunc(outage, func() { l.set(func(l *link) { l.down = false }) })
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)
		}
	})
}

// The store grants a request that has a minimum hold, the answer is lost, and the store is then
// unreachable until the lease of that grant is over. Nobody has held the name, so it is not closed: a
// request that has left ends the minimum hold once the store is reachable, and one that waits is granted.
func TestMinimumHoldOfAGrantThatIsOver(t *testing.T) {
	const outage = 3 * ttl
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprintf("wait=%t", wait), func(t *testing.T) {
			play(t, true, func(s scene) {
				e, l := s.client()
				l.loseAnswer(outage)
				req := request()
				req.Wait, req.MinHold = wait, time.Hour
				begun := time.Now()
				switch _, err := e.Acquire(s.Context(), req); {
				case wait:
					s.ok(err)
				case !errors.Is(err, driver.ErrUnavailable):
					t.Errorf("got %v, want ErrUnavailable", err)
				default:
					time.Sleep(outage)
					other, _ := s.client()
					s.acquire(other, waiting())
				}
				if took := time.Since(begun); took > outage+10*time.Second {
					t.Errorf("it was granted after %v", took)
				}
			})
		})
	}
}

// A process is frozen between its decision and its Swap from no record. In the meantime another process
// acquires and releases the name, and its record expires. Then the Swap succeeds, and its lease is not
// over. Its token is too old, so the process writes the record again.
func TestFrozenBeforeTheSwap(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		other, _ := s.client()
		var theirs driver.Grant
		l.set(func(l *link) {
			l.swap = func(next func() error) error {
				l.set(func(l *link) { l.swap = nil })
				time.Sleep(time.Second)
				theirs = s.acquire(other, request())
				s.ok(other.Release(s.Context(), lease(theirs)))
				time.Sleep(time.Hour)
				return next()
			}
		})
		req := waiting()
		req.TTL = 2 * time.Hour
		if g := s.acquire(e, req); g.Token <= theirs.Token {
			t.Errorf("token %d came after %d", g.Token, theirs.Token)
		}
	})
}

// Requests that do not wait arrive while each read is on its way. They need a newer one, and do not
// delay the answers of those that the read can refuse.
func TestTriesInQuickSuccession(t *testing.T) {
	play(t, true, func(s scene) {
		holder, _ := s.client()
		s.acquire(holder, request())
		e, l := s.client()
		l.set(func(l *link) { l.before, l.after = time.Millisecond, time.Millisecond })
		var all sync.WaitGroup
		defer all.Wait()
		for range 1000 {
			all.Go(func() { // ends when it is refused
				begun := time.Now()
				_, err := e.Acquire(s.Context(), request())
				if took := time.Since(begun); !errors.Is(err, driver.ErrHeld) || took > 100*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
			time.Sleep(time.Millisecond)
		}
	})
}

// So many requests of one process share a Swap that the record cannot have all of them. Those that have
// room are granted.
func TestManyFillARecordAtOnce(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		l.set(func(l *link) { l.most, l.before = 216<<10, time.Second })
		req := request()
		req.Mode = driver.Shared
		refused := make(chan error, 2000)
		var all sync.WaitGroup
		for range cap(refused) {
			all.Go(func() { // ends with its answer
				if _, err := e.Acquire(s.Context(), req); err != nil {
					refused <- err
				}
			})
		}
		all.Wait()
		if n := cap(refused) - len(refused); n < 900 {
			t.Errorf("%d are granted", n)
		}
		close(refused)
		for err := range refused {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "no room") {
				t.Fatalf("got %v", err)
			}
		}
	})
}
