// Package drivertest is the conformance suite for engines: it tests the contract of package driver.
// The author of an engine writes two small adapters, [World] and [Client], and one test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{World: newWorld})
//	}
//
// Each case gets a World of its own. Only the cases that apply to the engine's traits run. For an
// engine that runs inside the test process, set Suite.Bubble: the cases then simulate hours without
// taking real time.
//
// Many cases need faults: a process that dies or freezes, or an engine that does not answer.
// Package drivertest/proc causes real ones for engines on a server. Its Process is a Client in a
// child process, which can be killed and frozen. Its Freeze stops a server, which makes a World a
// [Cutter].
package drivertest

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// World is one deployment of an engine, such as a server or a directory.
type World interface {
	// Client returns a new client, which is another process as far as the engine can tell. It uses
	// t.Cleanup to close what it opens.
	Client(t testing.TB) Client
	// Restart restarts the engine itself, which must keep whatever it guarantees to keep. It does
	// nothing for engines without a server, such as files.
	Restart(t testing.TB)
}

// Cutter is a World whose engine can be made unresponsive, like a frozen server or one behind a
// partition. The cases about this are skipped for other Worlds.
type Cutter interface {
	World
	// Cut makes the engine unresponsive for every client, until Mend.
	Cut(t testing.TB)
	// Mend ends a Cut.
	Mend(t testing.TB)
}

// Client is one process that uses the engine. It may also implement driver.Lister, driver.Breaker,
// driver.OwnerBreaker, driver.Adopter, driver.Resizer, driver.RecordKeeper and io.Closer; the cases for these
// are skipped otherwise. A Client's Records may return driver.ErrUnsupported. If Traits.Rates is set, the
// Client must implement driver.RateLimiter.
type Client interface {
	driver.Engine
	// Kill ends the process, as kill -9 does: nothing is released, and later calls fail.
	Kill(t testing.TB)
	// Freeze stops the process until Thaw, as SIGSTOP does: it does nothing, and its calls block.
	Freeze(t testing.TB)
	// Thaw ends a Freeze.
	Thaw(t testing.TB)
}

// Remote is a Client for an engine in another process, such as a proc.Process. It has the methods
// of the optional interfaces whether or not that engine has them.
type Remote interface {
	Client
	// Has reports whether the engine has the optional interface with that name, such as "Lister", or
	// "Closer".
	Has(name string) bool
}

// as returns a client as an optional interface, if its engine implements that.
func as[T any](c Client) (optional T, ok bool) {
	if r, elsewhere := c.(Remote); elsewhere && !r.Has(reflect.TypeFor[T]().Name()) {
		return optional, false
	}
	optional, ok = c.(T)
	return optional, ok
}

// Suite describes the engine under test.
type Suite struct {
	// World creates a deployment without any locks.
	World func(t testing.TB) World
	// Bubble runs each case in a testing/synctest bubble with TTLs of one hour. Use it for engines
	// that run inside the test process.
	Bubble bool
	// TTL is the lease in cases that wait until it expires. 0 means 2 s. It is ignored with Bubble.
	TTL time.Duration
	// Patience is how long anything that must happen may take. 0 means 20 s. It is ignored with
	// Bubble.
	Patience time.Duration
	// MaxRecord is the longest value of a record that the engine stores, in bytes. 0 means
	// driver.MaxRecord. The engine must refuse a longer one with driver.ErrInvalid.
	MaxRecord int
	// Known lists cases, by name, that the engine is known to fail, with the reasons. They run, and
	// are reported if they pass, so that the list is kept up to date.
	Known map[string]string

	omitted map[string]string // by the name of an omission: the case that found it
}

// Case is one case of the suite.
type Case struct {
	// Name is the name of the subtest, in kebab-case.
	Name string
	// Needs reports whether engines with these traits must pass the case.
	Needs func(driver.Traits) bool
	// Run runs the case. If the engine fails, so does t. It returns in bounded time. With
	// Suite.Bubble the caller must open the bubble.
	Run func(t testing.TB, e Suite)
}

// Run runs every case that applies to the engine's traits, each as a subtest.
//
// A case ends at its first failure. Cases that need an optional interface are skipped if the engine
// does not have it. If the engine fails a case by omitting something that other cases need, those
// are skipped too. The reasons are reported.
func Run(t *testing.T, e Suite) {
	e.omitted = map[string]string{}
	traits := e.World(t).Client(t).Traits()
	for _, c := range Cases() {
		if c.Needs(traits) {
			t.Run(c.Name, func(t *testing.T) { e.run(t, c) })
		}
	}
}

// run runs one case, in a bubble if the suite has Bubble.
func (e Suite) run(t *testing.T, c Case) {
	if !e.Bubble {
		e.put(t, c)
		return
	}
	var inside *testing.T
	synctest.Test(t, func(t *testing.T) {
		inside = t
		e.put(t, c)
	})
	if inside.Skipped() { // which a bubble does not pass on
		t.SkipNow()
	}
}

// put puts one case, which must fail if that is known.
func (e Suite) put(t testing.TB, c Case) {
	why, known := e.Known[c.Name]
	if !known {
		c.Run(t, e)
		return
	}
	failures, skipped := collect(t, func(t testing.TB) { c.Run(t, e) })
	switch {
	case len(failures) > 0:
		t.Logf("known to fail (%s): %s", why, failures[0])
		return
	case skipped != "":
		t.Errorf("was skipped (%s): remove it from Suite.Known", skipped)
		return
	}
	t.Errorf("passes: remove it from Suite.Known, where its reason is: %s", why)
}
