package minio

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/recordlock"
)

// world is a prefix on a server with locks, whose clients are processes.
type world struct {
	*server
	prefix string
	alone  bool // nobody else uses the server
}

func (w world) Client(t testing.TB) drivertest.Client {
	return proc.Start(t, "s3", w.url()+" "+w.prefix)
}

func (w world) Restart(t testing.TB) {
	w.must(t)
	w.kill()
	w.run(t)
}

func (w world) Cut(t testing.TB)  { w.must(t); w.freeze(t) }
func (w world) Mend(t testing.TB) { w.thaw(t) }

// must fails the case unless it may stop the server.
func (w world) must(t testing.TB) {
	t.Helper()
	if !w.alone {
		t.Fatal("this case stops a server that others use: name it in examtest")
	}
}

// late are cases that ask for the state of a lease at its end. The store's clock has whole seconds, so
// a process that has not seen the lease before finds up to two seconds later that it is over.
var late = []string{"adopt-ended"}

// versioned makes a bucket keep all versions of its objects.
const versioned = `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>`

// TestLocks runs the conformance suite, with processes that are killed and frozen.
func TestLocks(t *testing.T) { suite(t, false) }

// TestVersionedBucket runs the conformance suite in a bucket that keeps all versions of its objects.
func TestVersionedBucket(t *testing.T) { suite(t, true) }

func suite(t *testing.T, versions bool) {
	program := build(t)
	open := func(t *testing.T) *server {
		s := start(t, program)
		if versions {
			s.do(t, "s3", "PUT", "/locks?versioning=", versioned)
		}
		return s
	}
	common := open(t)
	var worlds atomic.Int64
	suite := func(t *testing.T) drivertest.Suite {
		return drivertest.Suite{World: func(testing.TB) drivertest.World {
			w := world{server: common, prefix: fmt.Sprintf("world %d/", worlds.Add(1)), alone: examtest.Stops(t)}
			if w.alone {
				w.server = open(t)
			}
			return w
		}}
	}
	traits := suite(t).World(t).Client(t).Traits()
	for _, c := range drivertest.Cases() {
		if c.Needs(traits) && !slices.Contains(late, c.Name) {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, suite(t))
			})
		}
	}
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	s := start(t, build(t))
	examtest.Gone(t, examtest.Links(s.addr, func(t testing.TB, addr string) driver.Engine {
		e := recordlock.New(recordsAt("http://"+addr+" gone/"), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}
