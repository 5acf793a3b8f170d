package redislock_test

import (
	"fmt"
	"sync"
	"testing"
)

// TestHotLockCommands: what an acquisition of a lock that everybody wants costs the
// server, in commands, those of scripts included. A quiet machine needs two fewer: on
// a slow one some grants have to be asked for once more.
func TestHotLockCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engines, each int
		most          float64
	}{{2, 1, 17}, {8, 1, 16}, {8, 8, 16}} {
		t.Run(fmt.Sprintf("%dx%d", c.engines, c.each), func(t *testing.T) {
			s := newScene(t)
			const turns = 400
			cost := s.hot(c.engines, c.each, turns)
			t.Logf("%.1f commands an acquisition", cost)
			if cost > c.most {
				t.Errorf("%.1f commands an acquisition, want at most %.0f", cost, c.most)
			}
		})
	}
}

// hot makes engines with so many goroutines each take turns, and returns how many
// commands each turn costs.
func (s scene) hot(engines, each, turns int) float64 {
	s.Helper()
	begin, measure := make(chan struct{}), make(chan struct{})
	var warm, all sync.WaitGroup
	for range engines {
		e := s.engine(nil)
		s.ask(e, try(request("warm"))) // opens its subscription
		s.ready(e)
		warm.Add(each)
		for range each {
			all.Go(func() {
				turn := func() {
					g, err := e.Acquire(s.Context(), request("n"))
					if err == nil {
						err = hold{s, e, request("n"), g}.release()
					}
					if err != nil {
						s.Error(err)
					}
				}
				<-begin
				for range 5 {
					turn()
				}
				warm.Done()
				<-measure
				for range turns / each {
					turn()
				}
			})
		}
	}
	close(begin)
	warm.Wait()
	s.server.Do(s, "CONFIG", "RESETSTAT")
	close(measure)
	all.Wait()
	_, n := s.commands()
	return float64(n) / float64(engines*each*(turns/each))
}
