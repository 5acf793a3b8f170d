//go:build unix

package storetests_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

func TestMain(m *testing.M) {
	serveMember()
	nemesistest.ServeWorker(openPlace)
	proc.Main(openLocks)
	os.Exit(m.Run())
}

// openLocks opens locks, by the kind of the store.
var openLocks = map[string]func(where string) driver.Engine{"etcd": openEtcdLocks, "nats": openNATSLocks}

// store is one kind of store.
type store struct {
	kind  string
	start func(t hosttest.TB, members int) *cluster
	open  func(t testing.TB, c *cluster, name string) driver.Records // a part of the store
}

var stores = []store{
	{"etcd", startEtcd, openEtcd},
	{"nats", startNATS, openNATS},
}

// forEach runs a test on each kind of store.
func forEach(t *testing.T, test func(t *testing.T, s store)) {
	t.Parallel()
	for _, s := range stores {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// partOf returns the name of a part of a store for a test.
func partOf(t testing.TB) string { return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) }

// recordWorld is a part of a store, beside a memory that has the locks which some of the cases take.
type recordWorld struct {
	*cluster
	store store
	locks *memlock.Engine
}

func (w recordWorld) Client(t testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: w.store.open(t, w.cluster, partOf(t))}
}

func (w recordWorld) Restart(t testing.TB) { w.restart(t) }
func (w recordWorld) Cut(t testing.TB)     { w.freeze(t) }
func (w recordWorld) Mend(t testing.TB)    { w.thaw(t) }

// TestRecords runs the cases of the conformance suite that are about records.
func TestRecords(t *testing.T) {
	forEach(t, func(t *testing.T, s store) {
		c := s.start(t, 1)
		for _, of := range drivertest.Cases() {
			if strings.HasPrefix(of.Name, "record-") {
				t.Run(of.Name, func(t *testing.T) {
					of.Run(t, drivertest.Suite{World: func(testing.TB) drivertest.World { return recordWorld{c, s, memlock.New(nil)} }})
					if t.Skipped() && !(s.kind == "etcd" && of.Name == "record-clock") {
						t.Error("was not asked")
					}
				})
			}
		}
	})
}

// TestLocks runs the conformance suite on locks in records.
func TestLocks(t *testing.T) {
	forEach(t, func(t *testing.T, s store) {
		skip := map[string]string{}
		if s.kind == "etcd" {
			skip["adopt-ended"] = "etcd has no clock: a process without a past does not know that a lease has expired"
		}
		examtest.Locks(t, func(t testing.TB) examtest.Server {
			c := s.start(t, 1)
			return examtest.Server{
				Place: func(t testing.TB) func(testing.TB) drivertest.Client {
					part := partOf(t)
					s.open(t, c, part)
					where := strings.Join(c.addrs(), ",") + " " + part
					return func(t testing.TB) drivertest.Client { return proc.Start(t, s.kind, where) }
				},
				Restart: func(t testing.TB) { c.restart(t) }, Freeze: func(t testing.TB) { c.freeze(t) }, Thaw: func(t testing.TB) { c.thaw(t) },
			}
		}, skip)
	})
}

// closing is an engine that closes its client as well.
type closing struct {
	*recordlock.Engine
	close func()
}

func (c closing) Close() error {
	defer c.close()
	return c.Engine.Close()
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	forEach(t, func(t *testing.T, s store) {
		c := s.start(t, 1)
		s.open(t, c, "part")
		examtest.Gone(t, examtest.Links(c.addrs()[0], func(t testing.TB, addr string) driver.Engine {
			e := openLocks[s.kind](addr + " part").(closing)
			t.Cleanup(func() { _ = e.Close() })
			return e
		}))
	})
}
