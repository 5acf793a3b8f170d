//go:build unix

package clouds

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
)

// openPlace opens the locks of a worker; place is the name of the emulator, its address and a name.
func openPlace(place string) driver.Engine {
	name, where, _ := strings.Cut(place, " ")
	return kinds[name](where)
}

// TestNemesis kills and freezes the emulators and the workers, and disturbs connections, while the workers
// take locks.
func TestNemesis(t *testing.T) {
	for _, name := range []string{"azurite", "dynalite", "fake-gcs-server"} {
		t.Run(name, func(t *testing.T) {
			e := start(t, name)
			addr, ttl := e.addr(), 2*time.Second
			switch name {
			case "azurite":
				container(t, addr)
			case "dynalite":
				if err := dynamo(addr, "locks").Init(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "fake-gcs-server":
				addr, ttl = translate(t, e), 6*time.Second // an object can be written once a second
			}
			nemesistest.Nemesis{
				TTL: ttl, Rest: 3 * time.Second, Rules: history.Rules{Search: time.Minute},
				Place:   func(_ int, through func(string) string) string { return name + " " + through(addr) + " locks" },
				Disturb: func(note nemesistest.Note) { e.disturb(note) },
			}.Run(t)
		})
	}
}

// disturb injects a random fault of the emulator, and ends it.
func (e *emulator) disturb(note nemesistest.Note) {
	if rand.N(2) == 0 {
		defer note("restart the store")()
		e.stop(e.end())
		nemesistest.Lull()
		e.run()
		return
	}
	defer note("freeze the store")()
	e.signal(syscall.SIGSTOP)
	nemesistest.Lull()
	e.signal(syscall.SIGCONT)
}
