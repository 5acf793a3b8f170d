package minio

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
)

// TestNemesis kills and freezes the server and workers, and disturbs connections, while the workers
// take locks.
func TestNemesis(t *testing.T) {
	s := start(t, build(t))
	nemesistest.Nemesis{
		TTL:     3 * time.Second, // the clock of the store has whole seconds
		Disturb: func(note nemesistest.Note) { s.disturb(t, note) }, Rest: 3 * time.Second,
		Rules: history.Rules{Search: time.Minute},
		Place: func(_ int, through func(addr string) string) string {
			return "http://" + through(s.addr) + " nemesis/"
		},
	}.Run(t)
}

// disturb injects a random fault of the server, and ends it. note records it.
func (s *server) disturb(t testing.TB, note nemesistest.Note) {
	if rand.N(2) == 0 {
		defer note("kill the server")()
		s.kill()
		nemesistest.Lull()
		s.run(t)
		return
	}
	defer note("freeze the server")()
	s.freeze(t)
	nemesistest.Lull()
	s.thaw(t)
}
