package redislock_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

func TestMain(m *testing.M) {
	proc.Main(map[string]func(string) driver.Engine{
		"redis": func(addr string) driver.Engine {
			client := dial(addr)
			return closing{redislock.New(client, nil), client}
		},
		"in records": func(addr string) driver.Engine {
			client := dial(addr)
			inner := closing{redislock.New(client, nil), client}
			return recordProcess{recordlock.New(inner.Records(), nil), inner}
		},
		"patient": func(addr string) driver.Engine {
			client := dial(addr)
			return closing{redislock.NewConn(&tap{Conn: redisconn.Rueidis(client), longGrants: true}, patient(nil)), client}
		},
	})
	os.Exit(m.Run())
}

// closing is an engine that closes its client as well.
type closing struct {
	*redislock.Engine
	client rueidis.Client
}

func (e closing) Close() error {
	defer e.client.Close()
	return e.Engine.Close()
}

// dial connects to a server, in a child of the test as well.
func dial(addr string) rueidis.Client {
	client, err := connect(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, RingScaleEachConn: 5})
	if err != nil {
		panic(err)
	}
	return client
}

// TestExam runs every client of the conformance suite in a process of its own.
func TestExam(t *testing.T) {
	t.Parallel()
	examtest.Parallel(t, drivertest.Suite{World: newWorld, TTL: time.Second})
}

// recordProcess is an engine on the records of another one.
type recordProcess struct {
	*recordlock.Engine
	inner closing
}

func (p recordProcess) Close() error { return errors.Join(p.Engine.Close(), p.inner.Close()) }

// recordWorld is a server that keeps locks in records.
type recordWorld struct{ world }

func (w recordWorld) Client(t testing.TB) drivertest.Client {
	return proc.Start(t, "in records", w.Addr())
}

// TestLocksInRecords runs the suite on locks that are kept in the records of the engine.
func TestLocksInRecords(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELOCK_SLOW") == "" {
		t.Skip("make slow runs it: the suite of locks on MariaDB, and that of records here, test the same code")
	}
	examtest.Parallel(t, drivertest.Suite{World: func(t testing.TB) drivertest.World { return recordWorld{newWorld(t).(world)} }})
}

// TestLateHolder: what a holder writes that was frozen, or broken while it worked.
func TestLateHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	earlier, later := examtest.Frozen(t, w)
	verdict.Is(t, "Redis: the holder freezes", verdict.Guarded, verdict.OfHolders(nil, earlier, later))
	earlier, later = examtest.Broken(t, w)
	verdict.Is(t, "Redis: break while the holder works", verdict.Guarded, verdict.OfHolders(nil, earlier, later))
}

// world is a server that keeps its data over a restart.
type world struct{ *redistest.Redis }

func newWorld(t testing.TB) drivertest.World {
	return world{redistest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")}
}

func (w world) Client(t testing.TB) drivertest.Client {
	return proc.Start(t, "redis", w.Addr())
}

func (w world) Restart(t testing.TB) { w.Redis.Restart(t) }
func (w world) Cut(t testing.TB)     { w.Freeze(t) }
func (w world) Mend(t testing.TB)    { w.Thaw(t) }
