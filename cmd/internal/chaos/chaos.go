//go:build unix

// Package chaos shares locks between real processes on real servers and injects faults: it kills
// and freezes the processes, cuts, delays and stalls their connections, and stops, kills and
// flushes the servers and steps their clocks. Package history judges what the processes recorded,
// and every name must be free when all are dead.
//
// An [Arena] is the servers of one engine and the workers' proxies to them. What happens in it consists
// of rounds. A round follows from its seed, but the processes are not synchronised, so a seed
// repeats the faults and not every step. [Run] carries out rounds for a time and, after a
// violation, looks for fewer faults that show it too.
//
// Workers are processes of the same program, which must call [Main] first.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// Config says what happens in an arena. The zero value of a field other than Engine and Own means
// its default.
type Config struct {
	Engine   string        // one of Engines: its servers are started
	Own      *Own          // or an engine that runs already
	Open     Opener        // opens the engine of a URL
	Workers  int           // processes; 5 by default
	Twins    int           // how many locks there are of each kind; 3 by default
	TTL      time.Duration // of the locks; 1 s by default
	Rate     float64       // acquires in a second, of all workers together, at most; no limit by default
	Faults   []string      // by default those after which the engine promises one holder; see Mix
	Sabotage string        // one of Sabotages
	Hunting  bool          // each fault is given time to show what it does; with Sabotage always

	Live *Live // what a program shows meanwhile; may be nil
}

// Own is an engine whose servers were not started here. Nothing happens to them: all faults are
// those of clients.
type Own struct {
	Name string // as a person calls it
	*sandbox.Sandbox
}

// A Dialer connects to an address, such as "host:6379".
type Dialer = func(ctx context.Context, addr string) (net.Conn, error)

// An Opener opens the engine of a URL, with connections made by dial unless that is nil, and returns
// what closes it.
type Opener func(ctx context.Context, url string, dial Dialer) (driver.Engine, func() error, error)

// Engines returns the names of the engines whose servers can be started.
func Engines() []string { return slices.Sorted(maps.Keys(kinds)) }

// Mix returns the faults that a list names, separated by commas: "safe" are those after which the
// engine promises one holder, "all" also those of which its page says that they can lead to two.
func (c Config) Mix(list string) ([]string, error) {
	k := c.kind()
	all := slices.Concat(k.safe, k.unsafe)
	switch list {
	case "safe":
		return nil, nil
	case "all":
		return all, nil
	}
	faults := strings.Split(list, ",")
	for _, f := range faults {
		if !slices.Contains(all, f) {
			return nil, fmt.Errorf("%q is not one of %s", f, strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ", "))
		}
	}
	return faults, nil
}

// An Arena is the servers of one engine, and the proxies in front of them for each worker.
type Arena struct {
	Config
	t       hosttest.TB
	kind    kind
	servers servers
	ahead   time.Duration // how far the clock of the last server is

	resolvers []string          // of each worker: where it asks for its proxies
	mu        sync.Mutex        // guards proxies
	proxies   [][]*faults.Proxy // of each worker: one for each server

	floors map[string]int64 // the greatest tokens of earlier rounds, by the names of the locks
}

// NewArena starts the servers. They end with t.
func NewArena(t hosttest.TB, c Config) *Arena {
	c.Workers, c.Twins, c.TTL = cmp.Or(c.Workers, 5), cmp.Or(c.Twins, defaultTwins), cmp.Or(c.TTL, time.Second)
	c.Hunting = c.Hunting || c.Sabotage != ""
	if c.Live == nil {
		c.Live = &Live{}
	}
	a := &Arena{Config: c, t: t, floors: map[string]int64{}, proxies: make([][]*faults.Proxy, c.Workers)}
	a.kind = c.kind()
	if c.Own == nil {
		a.servers = a.kind.start(t)
		a.Own = &Own{Name: c.Engine, Sandbox: &sandbox.Sandbox{URL: a.kind.urlOf(a.servers, c.TTL)}}
	}
	a.prepare()
	for worker := range c.Workers {
		for _, addr := range a.servers.addrs {
			a.addProxy(worker, addr)
		}
		a.startResolver(worker)
	}
	if a.Faults == nil {
		a.Faults = a.kind.safe
		if s, ok := sabotages[c.Sabotage]; ok {
			a.Faults = slices.DeleteFunc(slices.Clone(s.faults), func(f string) bool { return !slices.Contains(a.kind.safe, f) })
		}
	}
	if a.servers.clock == nil {
		a.Faults = slices.DeleteFunc(slices.Clone(a.Faults), func(f string) bool { return f == clock || f == back })
	}
	return a
}

// kind is that of the engine.
func (c Config) kind() kind {
	if c.Own == nil {
		return kinds[c.Engine]
	}
	// Of each waiter that has died or is frozen, the pages of the engines say that it costs up to two
	// seconds, on a Cluster one after the other. Locks on files end with their process.
	const waiter = 2 * time.Second
	k := kind{fresh: c.Own.New, safe: network, extra: func(ttl time.Duration, _ int) time.Duration { return ttl + waiter }}
	switch c.Own.Dead {
	case sandbox.DeadInTurn:
		k.extra = func(_ time.Duration, workers int) time.Duration { return time.Duration(workers) * waiter }
	case sandbox.DeadLeases:
		k.extra, k.places = recordsExtra, 6*time.Second
	case sandbox.DeadNothing:
		k.extra = nil
	}
	if c.Own.Plain {
		k.safe = append([]string{twice}, network...)
	}
	if c.Own.Local {
		k.safe = processes
	}
	return k
}

// open opens the engine without any fault on the way. A server that was started here may be starting
// again.
func (a *Arena) open(ctx context.Context) (driver.Engine, func() error) {
	patience := time.Now().Add(30 * time.Second)
	engine, end, err := a.Open(ctx, a.Own.URL, nil)
	for errors.Is(err, driver.ErrUnavailable) && len(a.servers.addrs) > 0 && time.Now().Before(patience) {
		time.Sleep(100 * time.Millisecond)
		engine, end, err = a.Open(ctx, a.Own.URL, nil)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return engine, end
}

// prepare declares the servers new if they are, and acquires a lock, so that a user without the rights
// learns of it before the workers wait for their first locks.
func (a *Arena) prepare() {
	ctx, cancel := context.WithTimeout(a.t.Context(), 30*time.Second)
	defer cancel()
	engine, end := a.open(ctx)
	var err error
	if a.kind.fresh {
		err = engine.(interface{ Init(context.Context) error }).Init(ctx)
	}
	if err == nil {
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: a.TTL})
		err = locks.Do(ctx, a.Own.Names+longName, func(context.Context) error { return nil })
	}
	if err := errors.Join(err, end()); err != nil {
		a.t.Fatal(err)
	}
}

// tempo is that of storms of faults, or where something is to be found, that of faults each of which
// shows what it does: others must get the lock that one has lost.
func (a *Arena) tempo() tempo {
	if a.Hunting {
		return tempo{ttl: a.TTL, gap: a.TTL, rest: 2 * a.TTL}
	}
	return tempo{ttl: a.TTL, gap: a.TTL / 5, rest: max(a.kind.rest, a.TTL/2)}
}

// Plan makes the faults of a round.
func (a *Arena) Plan(seed uint64, length time.Duration) []Fault {
	return plan(rand.New(rand.NewPCG(seed, 0)), a.Faults, a.Workers, len(a.servers.addrs), length, a.tempo())
}

// extra is how much longer than its TTL a name may stay closed.
func (a *Arena) extra() time.Duration {
	if a.kind.extra == nil {
		return 0
	}
	return a.kind.extra(a.TTL, a.Workers)
}

// lane is the name of a worker in histories.
func lane(worker int) string { return fmt.Sprintf("w%d", worker) }
