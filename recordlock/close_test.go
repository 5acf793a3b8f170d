package recordlock_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// soonFree fails the test unless another client is granted the name long before a lease ends.
func soonFree(s scene) {
	s.Helper()
	other, _ := s.client()
	ctx, cancel := contextFor(s, ttl/5)
	defer cancel()
	if _, err := other.Acquire(ctx, waiting()); err != nil {
		s.Errorf("the name stays closed: %v", err)
	}
}

// An engine is closed while the store executes a Swap that makes a request a holder, or a waiter. The request is
// not granted, since nothing would renew it, and nothing of it stays.
func TestAcquireMeetsClose(t *testing.T) {
	for name, answer := range map[string]error{
		"answered": nil, "lost": fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF),
	} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, held=%t", name, held), func(t *testing.T) {
				play(t, true, func(s scene) {
					e, l := s.client()
					holder, _ := s.client()
					var h driver.Grant
					if held {
						h = s.acquire(holder, request())
					}
					executed, closing := make(chan bool), make(chan bool)
					first := true
					l.set(func(l *link) {
						l.swap = func(next func() error) error {
							if !first {
								return next()
							}
							first = false
							err := next()
							executed <- true
							<-closing
							return errors.Join(err, answer)
						}
					})
					done := make(chan error, 1)
					go func() { // ends when the engine is closed
						req := waiting()
						req.MinHold = time.Hour
						_, err := e.Acquire(s.Context(), req)
						done <- err
					}()
					<-executed
					closed := make(chan error, 1)
					go func() { closed <- e.Close() }() // ends when the requests have ended
					synctest.Wait()
					close(closing)
					s.ok(<-closed)
					if err := <-done; !errors.Is(err, driver.ErrUnavailable) {
						t.Errorf("got %v, want ErrUnavailable", err)
					}
					if _, err := e.Acquire(s.Context(), request()); !errors.Is(err, driver.ErrUnavailable) {
						t.Errorf("after Close: got %v, want ErrUnavailable", err)
					}
					if held {
						s.ok(holder.Release(s.Context(), lease(h)))
					}
					soonFree(s)
				})
			})
		}
	}
}

// Close does not wait long for a store that is unreachable.
func TestCloseWhileTheStoreIsUnreachable(t *testing.T) {
	play(t, true, func(s scene) {
		e, l := s.client()
		l.set(func(l *link) { l.swap = func(func() error) error { return driver.ErrUnavailable } })
		done := make(chan error, 1)
		go func() { // ends when the engine is closed
			_, err := e.Acquire(s.Context(), waiting())
			done <- err
		}()
		time.Sleep(time.Second)
		begun := time.Now()
		s.ok(e.Close())
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// A request fails with ErrConfig after an attempt of unknown outcome, or while it has a place. Nothing of it stays
// once the store answers again.
func TestConfigErrorAfterAnUnknownOutcome(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			play(t, true, func(s scene) {
				e, l := s.client()
				holder, _ := s.client()
				var h driver.Grant
				if held {
					h = s.acquire(holder, request())
				}
				first := true
				l.set(func(l *link) {
					l.swap = func(next func() error) error {
						err := next()
						if first {
							l.set(func(l *link) { l.deny = true })
							first = false
							return errors.Join(err, driver.ErrUnavailable)
						}
						return err
					}
				})
				req := waiting()
				req.MinHold = time.Hour
				if _, err := e.Acquire(s.Context(), req); !errors.Is(err, driver.ErrConfig) {
					t.Errorf("got %v, want ErrConfig", err)
				}
				time.Sleep(time.Second)
				l.set(func(l *link) { l.deny = false })
				time.Sleep(time.Second)
				if held {
					s.ok(holder.Release(s.Context(), lease(h)))
				}
				soonFree(s)
			})
		})
	}
}

// An engine is closed after a request was granted, and before its caller knows, also while a request to the
// store is on its way. The request is not granted, and nothing of it stays.
func TestCloseMeetsAGrant(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%t", busy), func(t *testing.T) {
			play(t, true, func(s scene) {
				e, l := s.client()
				holder, _ := s.client()
				h := s.acquire(holder, request())
				waits, answer, done := make(chan bool), make(chan bool), make(chan error, 1)
				go func() { // ends with the test's answer
					req := waiting()
					req.OnWait = func(driver.WaitInfo) {
						waits <- true
						<-answer
					}
					_, err := e.Acquire(s.Context(), req)
					done <- err
				}()
				<-waits
				s.ok(holder.Release(s.Context(), lease(h)))
				time.Sleep(time.Second) // the request is granted
				begun, goOn := make(chan bool, 1), make(chan bool)
				if busy {
					l.set(func(l *link) {
						l.swap = func(next func() error) error {
							begun <- true
							<-goOn
							return next()
						}
					})
					go func() { _, _ = e.Acquire(s.Context(), waiting()) }() // ends when the engine is closed
					<-begun
				}
				closed := make(chan error, 1)
				go func() { closed <- e.Close() }() // ends when the requests have ended
				synctest.Wait()
				if !busy { // the caller comes when the engine has been closed
					s.ok(<-closed)
					close(closed)
				}
				close(answer)
				if err := <-done; !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				l.set(func(l *link) { l.swap = nil })
				close(goOn)
				s.ok(<-closed)
				soonFree(s)
			})
		})
	}
}
