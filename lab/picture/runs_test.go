//go:build linux

package picture_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/reexec"
	"github.com/fencelock/fencelock/lab/picture"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// recordTo is the directory of the documentation, if the runs are to be drawn:
//
//	go test -C lab ./picture -run Runs -record ../../docs
var recordTo = flag.String("record", "", "store the runs for the pictures of this `directory`")

func TestMain(m *testing.M) {
	reexec.Main(map[string]reexec.Job{"hold": reexec.Of(hold)})
	os.Exit(m.Run())
}

const (
	ttl  = 6 * time.Second
	lag  = 5 * time.Second // of the replica of a Redis with quarantine
	name = "report"
)

// orders are what a worker does: it holds a lock and writes a file with a guard, again and again.
type orders struct {
	Kind  string // of the engine
	Addrs []string
	File  string
	TTL   time.Duration
	Work  time.Duration // before each write
}

// event is what a worker reports.
type event struct {
	At    time.Time
	What  string // opened, granted, wrote, refused, lost or released
	Token int64
}

// hold acquires the lock after its first line of input and releases it after the second.
func hold(o orders, in *bufio.Scanner) error {
	engine, err := o.open()
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(event{At: time.Now(), What: "opened"}); err != nil {
		return err
	}
	in.Scan()
	lock, err := fencelock.New(engine, nil).With(fencelock.Options{TTL: o.TTL}).Acquire(context.Background(), name)
	if err != nil {
		return err
	}
	report := func(what string) { _ = out.Encode(event{time.Now(), what, lock.Token()}) }
	report("granted")
	asked := make(chan struct{})
	go func() { // ends with the input, and so with the test
		in.Scan()
		close(asked)
	}()
	ctx := context.WithoutCancel(lock.Context()) // the write comes after the last check
	for lock.Err() == nil {
		select {
		case <-asked:
			if err := lock.Release(); err != nil {
				return err
			}
			report("released")
			return nil
		case <-time.After(o.Work):
		}
		switch err := fence.ReplaceFile(ctx, o.File, []byte(strconv.FormatInt(lock.Token(), 10)), 0o600); {
		case err == nil:
			report("wrote")
		case errors.Is(err, fence.ErrStale):
			report("refused")
		default:
			return err
		}
	}
	report("lost")
	<-asked
	return nil
}

// open opens the engine.
func (o orders) open() (driver.Engine, error) {
	option := rueidis.ClientOption{InitAddress: o.Addrs, DisableCache: true}
	cfg := redislock.Config{MaxTTL: ttl}
	switch o.Kind {
	case "postgres":
		pool, err := pgxpool.New(context.Background(), fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=1&target_session_attrs=read-write", strings.Join(o.Addrs, ",")))
		return pglock.New(pool, &pglock.Config{MaxTTL: ttl}), err
	case "redlock":
		var nodes []redlock.Node
		for _, addr := range o.Addrs {
			nodes = append(nodes, redlock.NewLazy(func() (rueidis.Client, error) {
				return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
			}))
		}
		return redlock.New(nodes, &redlock.Config{MaxTTL: ttl}), nil
	case "quarantine":
		cfg.Quarantine, cfg.ReplicaLag = true, lag
		fallthrough
	case "sentinel":
		option.Sentinel.MasterSet = "fencelock"
		option.Sentinel.TopologyRefreshInterval = 5 * time.Second
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	return redislock.New(client, &cfg), nil
}

// actor is a worker and what it has reported.
type actor struct {
	*reexec.Worker
	began  time.Time // its request
	events chan event
	seen   []event
}

// hire starts a worker, and returns when it has opened the engine.
func hire(t *testing.T, o orders) *actor {
	w, err := reexec.Start("hold", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Kill() })
	a := &actor{Worker: w, events: make(chan event, 10_000)}
	go func() { // ends with the worker
		defer close(a.events)
		for {
			var e event
			if json.Unmarshal([]byte(w.Hear()), &e) != nil {
				return
			}
			a.events <- e
		}
	}()
	a.until(t, "opened")
	return a
}

// ask lets the worker ask for the lock.
func (a *actor) ask() {
	a.began = time.Now()
	a.Say("acquire")
}

// patience is how long a run waits for what must happen.
const patience = 2 * time.Minute

// until waits for an event.
func (a *actor) until(t *testing.T, what string) event {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case e, ok := <-a.events:
			if !ok {
				t.Fatalf("a worker ended and has not %s", what)
			}
			if a.seen = append(a.seen, e); e.What == what {
				return e
			}
		case <-limit:
			t.Fatalf("a worker has not %s", what)
		}
	}
}

// first returns the first event of a kind so far.
func (a *actor) first(what string) (event, bool) {
	for {
		select {
		case e, ok := <-a.events:
			if ok {
				a.seen = append(a.seen, e)
				continue
			}
		default:
		}
		break
	}
	for _, e := range a.seen {
		if e.What == what {
			return e, true
		}
	}
	return event{}, false
}

// signal sends a signal to the worker.
func (a *actor) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := a.Process().Signal(s); err != nil {
		t.Fatal(err)
	}
}

// guardedFile returns a file for the workers of a run.
func guardedFile(t *testing.T) string { return filepath.Join(t.TempDir(), "report") }

// clock converts times to seconds of a run.
type clock time.Time

func (c clock) at(t time.Time) float64 {
	return float64(t.Sub(time.Time(c)).Milliseconds()) / 1000
}

// store stores a timeline if that is wanted.
func store(t *testing.T, file string, tl picture.Timeline) {
	t.Helper()
	if *recordTo == "" {
		return
	}
	if err := picture.Store(*recordTo, file, tl); err != nil {
		t.Fatal(err)
	}
}
