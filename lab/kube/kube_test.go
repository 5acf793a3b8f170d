// Package kube tests kuberecords on a real kube-apiserver, also beside the leader election of client-go.
package kube

import (
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && candidates[os.Args[1]] != nil {
		candidates[os.Args[1]](os.Args[2])
		return
	}
	nemesistest.ServeWorker(func(place string) driver.Engine { return open(place) })
	proc.Main(map[string]func(string) driver.Engine{"kube": func(where string) driver.Engine { return open(where) }})
	os.Exit(m.Run())
}

// open opens the locks of a namespace; where is the URL of the server, the file with its certificate
// and the namespace.
func open(where string) *recordlock.Engine { return recordlock.New(openRecords(where), nil) }

func openRecords(where string) *kuberecords.Records {
	parts := strings.Fields(where)
	records, err := kuberecords.New(&kuberecords.Config{
		Server: parts[0], CAFile: parts[1], Namespace: parts[2], Token: func() (string, error) { return locksToken, nil },
	})
	if err != nil {
		panic(err)
	}
	return records
}

// where returns the argument of open for a new namespace.
func (s *server) where(t testing.TB) string { return s.place(s.namespace(t)) }

func (s *server) place(namespace string) string { return s.url + " " + s.ca() + " " + namespace }

// world is a namespace with locks, whose clients are processes.
type world struct {
	*server
	place string
}

func (w world) Client(t testing.TB) drivertest.Client { return proc.Start(t, "kube", w.place) }
func (w world) Restart(t testing.TB)                  { w.restart(t) }
func (w world) Cut(t testing.TB)                      { proc.Freeze(t, w.api.Process) }
func (w world) Mend(t testing.TB)                     { proc.Thaw(t, w.api.Process) }

// TestLocks runs the conformance suite on locks in Lease objects of a real kube-apiserver.
func TestLocks(t *testing.T) {
	s := start(t)
	if err := openRecords(s.where(t)).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	drivertest.Run(t, drivertest.Suite{MaxRecord: 252 << 10, World: func(t testing.TB) drivertest.World {
		return world{s, s.where(t)}
	}})
}

// TestHolderGone measures when the lock of a holder that is cut off, or has died, is granted.
func TestHolderGone(t *testing.T) {
	s := start(t)
	namespace := s.namespace(t)
	examtest.Gone(t, examtest.Links(strings.TrimPrefix(s.url, "https://"), func(t testing.TB, addr string) driver.Engine {
		e := open("https://" + addr + " " + s.ca() + " " + namespace)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}

// awaitWorld is a namespace with records, beside a memory with locks.
type awaitWorld struct {
	place string
	locks *memlock.Engine
}

func (w awaitWorld) Restart(testing.TB) {}
func (w awaitWorld) Client(testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: openRecords(w.place)}
}

// TestAwait runs the case of the suite about watches.
func TestAwait(t *testing.T) {
	s := start(t)
	examtest.Records(t, "record-await", drivertest.Suite{World: func(t testing.TB) drivertest.World {
		return awaitWorld{s.where(t), memlock.New(nil)}
	}})
}
