// Package drivertest is the conformance suite for engines: the contract of package driver, as
// tests. An engine's author writes two small adapters, [World] and [Client], and one test:
//
//	func TestExam(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{World: newWorld})
//	}
//
// Each case gets a World of its own, and only the cases that fit the engine's Traits run. For an
// engine inside the test process, set Suite.Bubble: its cases then take hours of virtual time and
// no real time.
//
// Many cases are about faults: a process that dies or stops, an engine that does not answer. For an
// engine on a server use package drivertest/proc. Its Process is a Client in a child process, which
// is killed and frozen for real, and its Freeze stops a server, which makes a World a [Cutter].
package drivertest

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// World is one deployment of an engine: what a server, or a directory, is.
type World interface {
	// Client returns another process, as the engine sees it. What it opens is
	// closed by t.Cleanup.
	Client(t testing.TB) Client
	// Restart stops and starts the engine itself, which keeps what it promises
	// to keep. For files and the like it does nothing.
	Restart(t testing.TB)
}

// Cutter is a World whose engine can stop answering, without a word, as a server
// that is frozen or behind a silent partition. The cases about that then run.
type Cutter interface {
	World
	// Cut makes the engine silent for every client, until Mend.
	Cut(t testing.TB)
	// Mend ends a Cut.
	Mend(t testing.TB)
}

// Client is one process that uses the engine. It may also implement
// driver.Lister, driver.Breaker, driver.OwnerBreaker, driver.Resizer and
// driver.RecordKeeper, whose cases then run, and are skipped otherwise. A Records may
// answer driver.ErrUnsupported. With Traits.Rates it is a driver.RateLimiter.
type Client interface {
	driver.Engine
	// Kill ends the process as kill -9 does: nothing is released and later
	// calls fail.
	Kill(t testing.TB)
	// Freeze stops the process as SIGSTOP does: it does nothing until Thaw, and
	// calls made on it block until then.
	Freeze(t testing.TB)
	// Thaw ends a Freeze.
	Thaw(t testing.TB)
}

// Remote is a Client that stands for an engine elsewhere, such as a proc.Process. It has the
// methods of the optional interfaces, whether that engine has them or not.
type Remote interface {
	Client
	// Has reports whether the engine has the optional interface of package driver with
	// that name, such as "Lister".
	Has(name string) bool
}

// as returns a client as an optional interface of package driver, if its engine has it.
func as[T any](c Client) (optional T, ok bool) {
	if r, elsewhere := c.(Remote); elsewhere && !r.Has(reflect.TypeFor[T]().Name()) {
		return optional, false
	}
	optional, ok = c.(T)
	return optional, ok
}

// Suite describes the engine under test.
type Suite struct {
	// World makes a deployment that holds no locks.
	World func(t testing.TB) World
	// Bubble runs each case in a testing/synctest bubble with TTLs of one hour.
	// It is for engines that live inside the test process.
	Bubble bool
	// TTL is the lease of the cases that wait for its end. It is ignored in a
	// bubble. 0 means 2 s.
	TTL time.Duration
	// Patience is how long something that must happen may take. It is ignored
	// in a bubble. 0 means 20 s.
	Patience time.Duration
	// Known are the cases, by name, that the engine does not pass yet, and why.
	// They run, and fail if they pass, so that the list empties itself.
	Known map[string]string

	omitted map[string]string // by which cases the engine was found to leave out what others need
}

// Case is one question of the exam.
type Case struct {
	// Name is the name of the subtest, in kebab-case.
	Name string
	// Needs reports whether an engine of these traits has to pass.
	Needs func(driver.Traits) bool
	// Run puts the question. It fails t, and returns in bounded time, if the
	// engine does not answer well. With Suite.Bubble the caller has opened the
	// bubble.
	Run func(t testing.TB, e Suite)
}

// Run puts the engine to every case that fits its traits, each as a subtest.
//
// A case stops at its first failure. What an engine cannot do at all is skipped, with the
// reason; so are cases that need what another one has failed by.
func Run(t *testing.T, e Suite) {
	e.omitted = map[string]string{}
	traits := e.World(t).Client(t).Traits()
	for _, c := range Cases() {
		if c.Needs(traits) {
			t.Run(c.Name, func(t *testing.T) { e.run(t, c) })
		}
	}
}

// run puts one case, in a bubble if the exam wants one.
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
		t.Errorf("is not asked (%s): take it off Suite.Known", skipped)
		return
	}
	t.Errorf("passes: take it off Suite.Known, where it stands as: %s", why)
}
