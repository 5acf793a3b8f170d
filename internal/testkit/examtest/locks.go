package examtest

import (
	"path"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// Server is a server with locks in records. Several cases use it at the same time.
type Server struct {
	// Place makes a part of the server without locks. Client starts a process that uses it.
	Place func(t testing.TB) (client func(testing.TB) drivertest.Client)
	// Restart, Freeze and Thaw stop the server and start it again.
	Restart, Freeze, Thaw func(t testing.TB)
}

// stopping are the cases that stop the server of an engine whose locks are in records.
var stopping = []string{"ended-context", "outage", "record-lasts", "record-outage", "resize-lasts", "token-increasing", "unreachable"}

// Locks is Parallel for a server, except for the cases in skip, which have reasons. The cases that
// stop a server have one of their own.
func Locks(t *testing.T, start func(testing.TB) Server, skip map[string]string) {
	t.Helper()
	common := start(t)
	suite := drivertest.Suite{World: func(t testing.TB) drivertest.World {
		w := place{Server: common, alone: slices.Contains(stopping, path.Base(t.Name()))}
		if w.alone {
			w.Server = start(t)
		}
		w.client = w.Place(t)
		return w
	}}
	traits := suite.World(t).Client(t).Traits()
	for _, c := range drivertest.Cases() {
		if !c.Needs(traits) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if why := skip[c.Name]; why != "" {
				t.Skip(why)
			}
			t.Parallel()
			c.Run(t, suite)
		})
	}
}

// place is a part of a server.
type place struct {
	Server
	client func(testing.TB) drivertest.Client
	alone  bool // no other case uses the server
}

func (p place) Client(t testing.TB) drivertest.Client { return p.client(t) }
func (p place) Restart(t testing.TB)                  { p.must(t); p.Server.Restart(t) }
func (p place) Cut(t testing.TB)                      { p.must(t); p.Freeze(t) }
func (p place) Mend(t testing.TB)                     { p.Thaw(t) }

// must fails the case unless it may stop the server.
func (p place) must(t testing.TB) {
	t.Helper()
	if !p.alone {
		t.Fatal("this case stops a server that others use: name it in stopping")
	}
}
