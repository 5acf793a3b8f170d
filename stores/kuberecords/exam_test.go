//go:build unix

package kuberecords_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/kuberecords"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{"kube": func(url string) driver.Engine {
		return recordlock.New(open(url), nil)
	}})
	os.Exit(m.Run())
}

// open returns records of a namespace on a server.
func open(url string) *kuberecords.Records {
	records, err := kuberecords.New(&kuberecords.Config{Server: url, Namespace: "shop"})
	if err != nil {
		panic(err)
	}
	return records
}

// site is a server that can be cut off.
type site struct {
	*kubetest.Server
	mend chan struct{}
}

func (s *site) Restart(testing.TB) { s.Server.Server.CloseClientConnections() }

func (s *site) Cut(testing.TB) {
	mend := make(chan struct{})
	s.mend = mend
	s.Intercept(func(_ http.ResponseWriter, r *http.Request, _ func()) bool {
		select {
		case <-mend:
		case <-r.Context().Done():
		}
		return false
	})
	s.Kick() // so that its watches report nothing, either
}

func (s *site) Mend(testing.TB) {
	s.Intercept(nil)
	close(s.mend)
}

// world is a namespace, beside a memory that has the locks which some of the cases take.
type world struct {
	*site
	locks *memlock.Engine
}

func (w world) Client(testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: open(w.URL)}
}

// TestExam runs the cases of the conformance suite that are about records.
func TestExam(t *testing.T) {
	t.Parallel()
	examtest.Records(t, "record-", drivertest.Suite{MaxRecord: kuberecords.MaxValue, World: func(t testing.TB) drivertest.World {
		return world{&site{Server: kubetest.Start(t)}, memlock.New(nil)}
	}})
}

// lockWorld is a namespace with locks, whose clients are processes.
type lockWorld struct{ *site }

func (w lockWorld) Client(t testing.TB) drivertest.Client { return proc.Start(t, "kube", w.URL) }

// TestLocks runs the conformance suite on locks in Lease objects.
func TestLocks(t *testing.T) {
	t.Parallel()
	examtest.Parallel(t, drivertest.Suite{MaxRecord: kuberecords.MaxValue, World: func(t testing.TB) drivertest.World {
		return lockWorld{&site{Server: kubetest.Start(t)}}
	}})
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	s := kubetest.Start(t)
	examtest.Gone(t, examtest.Links(s.Server.Listener.Addr().String(), func(t testing.TB, addr string) driver.Engine {
		e := recordlock.New(open("http://"+addr), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}
