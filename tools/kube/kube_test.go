// Package kube tests kubelock on a real kube-apiserver, also beside the leader election of client-go.
package kube

import (
	"os"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/kubelock"
	"github.com/fencelock/fencelock/recordlock"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && candidates[os.Args[1]] != nil {
		candidates[os.Args[1]](os.Args[2])
		return
	}
	proc.Main(map[string]func(string) driver.Engine{"kube": func(where string) driver.Engine { return open(where) }})
	os.Exit(m.Run())
}

// open opens the locks of a namespace; where is the URL of the server, the file with its certificate
// and the namespace.
func open(where string) *recordlock.Engine {
	parts := strings.Fields(where)
	records, err := kubelock.New(&kubelock.Config{
		Server: parts[0], CAFile: parts[1], Namespace: parts[2], Token: func() (string, error) { return locksToken, nil },
	})
	if err != nil {
		panic(err)
	}
	return recordlock.New(records, nil)
}

// where returns the argument of open for a new namespace.
func (s *server) where(t testing.TB) string { return s.url + " " + s.ca() + " " + s.namespace(t) }

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
	records, err := kubelock.New(&kubelock.Config{
		Server: s.url, CAFile: s.ca(), Namespace: s.namespace(t), Token: func() (string, error) { return locksToken, nil },
	})
	if err == nil {
		err = records.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	drivertest.Run(t, drivertest.Suite{MaxRecord: kubelock.MaxValue, World: func(t testing.TB) drivertest.World {
		return world{s, s.where(t)}
	}})
}
