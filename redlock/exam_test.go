package redlock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{
		"redlock": func(addrs string) driver.Engine { return dial(strings.Split(addrs, ",")) },
	})
	redlock.BePatient() // clients of the conformance suite, which are processes of their own, are not
	os.Exit(m.Run())
}

// newClient makes a client of one server. Its queue of requests is small: with the race detector the
// usual one takes a good part of the time in which a short test connects.
func newClient(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true, RingScaleEachConn: 5})
}

// dial makes an engine on servers, in a child of the test as well.
func dial(addrs []string) closing {
	var c closing
	var conns []redlock.Node
	for _, addr := range addrs {
		client, err := newClient(addr)
		if err != nil {
			panic(err)
		}
		c.clients = append(c.clients, client)
		conns = append(conns, redlock.Rueidis(client))
	}
	c.Engine = redlock.New(conns, &redlock.Config{Nodes: addrs, MaxTTL: 2 * time.Minute, RetryTimeout: 20 * time.Second, NodeLimit: 5 * time.Second})
	return c
}

// closing is an engine that closes its clients as well.
type closing struct {
	*redlock.Engine
	clients []rueidis.Client
}

func (e closing) Close() error {
	err := e.Engine.Close()
	for _, c := range e.clients {
		c.Close()
	}
	return err
}

// TestExam runs every client of the conformance suite in a process of its own, on three real
// servers.
func TestExam(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: the holder is killed", verdict.Safe)
	verdict.Is(t, "Redlock: a node restarts with its data", verdict.Safe)
	examtest.Parallel(t, drivertest.Suite{World: newWorld, TTL: time.Second, Patience: 40 * time.Second})
}

// TestLateHolder: what a holder writes that was frozen, or broken while it worked.
func TestLateHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	earlier, later := examtest.Frozen(t, w)
	verdict.Is(t, "Redlock: the holder freezes", verdict.Guarded, verdict.OfHolders(nil, earlier, later))
	earlier, later = examtest.Broken(t, w)
	verdict.Is(t, "Redlock: break while the holder works", verdict.Guarded, verdict.OfHolders(nil, earlier, later))
}

// world is three servers that keep their data over a restart.
type world []*redistest.Redis

func newWorld(t testing.TB) drivertest.World { return startNodes(t, 3, "--appendonly", "yes") }

// startNodes starts servers and declares them new.
func startNodes(t testing.TB, n int, args ...string) world {
	t.Helper()
	w := make(world, n)
	for i := range w {
		w[i] = redistest.StartRedis(t, args...)
	}
	w.declareNew(t)
	return w
}

func (w world) declareNew(t testing.TB) {
	t.Helper()
	e := dial(w.addrs())
	defer e.Close()
	eventually(t, "nodes that are declared new", func() bool { // a busy machine may be too slow for Init's limits
		err := e.Init(context.Background())
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func (w world) addrs() (all []string) {
	for _, r := range w {
		all = append(all, r.Addr())
	}
	return all
}

func (w world) Client(t testing.TB) drivertest.Client {
	return proc.Start(t, "redlock", strings.Join(w.addrs(), ","))
}

func (w world) Restart(t testing.TB) {
	for _, r := range w {
		r.Restart(t)
	}
	w.declareNew(t)
}

// Cut leaves a minority that answers.
func (w world) Cut(t testing.TB) {
	for _, r := range w[:len(w)/2+1] {
		r.Freeze(t)
	}
}

func (w world) Mend(t testing.TB) {
	for _, r := range w[:len(w)/2+1] {
		r.Thaw(t)
	}
}
