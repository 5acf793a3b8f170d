package main

import (
	"context"
	"fmt"
	"time"
)

// ttl is everybody's lease: long enough that nobody loses a lock to a busy
// machine.
const ttl = 30 * time.Second

// suite is one engine with its peers.
type suite struct {
	name, title string
	notes       string // how the contestants run, for readers of the page
	pictures    string // in Markdown, for the page
	contestants []contestant
	signal      contestant // the least a hand-over can cost; it fills the column of the limit there
	measures    []measure
	bars        map[string][]bar // by row, for those that differ between engines
	per         int              // operations in a round of alone
	start       func() (server, error)
	inside      bool // of interest to those who change this library: measured when asked for by name, and not on the page
}

// suites are all that is measured; every engine has one.
var suites = []suite{redisSuite, hotSuite, modesSuite, ratesSuite, postgresSuite, postgresModesSuite, mariadbSuite, redlockSuite(3), redlockSuite(5), hooksSuite, commandSuite}

// ours is the contestant that the bars are for, and bare the limit: the same
// commands without a library.
const (
	ours = "fencelock"
	bare = "bare"
)

// contestant is one way to lock.
type contestant struct {
	name   string
	open   func(*process) (client, error)
	wait   func(*process) (client, error) // opens the waiter's side of a hand-over; nil means open
	renews bool                           // it keeps its locks alive by itself
	sends  []string                       // commands it sends outside of scripts, beside those that all send
}

// client is a contestant as one process has it. It is safe for concurrent use.
type client interface {
	acquire(ctx context.Context, name string) (lock, error) // waits for its turn
	close()
}

// lock is a lock that is held.
type lock interface {
	release() error
	err() error // nil while it is held, as far as the contestant can tell
}

// server is what all contestants of a suite lock on.
type server interface {
	addr() string // for workers; several are separated by commas
	version() string
	stop()
}

// counting is a server that counts commands.
type counting interface{ counters() (counters, error) }

// counters are a server's own.
type counters struct {
	total int64            // every command, those inside of scripts too
	calls map[string]int64 // by command
	cpu   time.Duration    // of the server
}

// since returns how far the counters went on from an earlier reading.
func (c counters) since(before counters) counters {
	out := counters{total: c.total - before.total, calls: map[string]int64{}, cpu: c.cpu - before.cpu}
	for name, n := range c.calls {
		if n -= before.calls[name]; n > 0 {
			out.calls[name] = n
		}
	}
	return out
}

// arena is a suite with its server running.
type arena struct {
	suite
	server
	home *process // the clients of this process
}

func newArena(s suite) (*arena, error) {
	srv, err := s.start()
	if err != nil {
		return nil, err
	}
	return &arena{suite: s, server: srv, home: &process{addr: srv.addr()}}, nil
}

func (a *arena) stop() {
	a.home.close()
	a.server.stop()
}

// opened is a contestant with a client open.
type opened struct {
	contestant
	client
}

// counters are those of the server, zero if it does not count.
func (a *arena) counters() (counters, error) {
	if srv, ok := a.server.(counting); ok {
		return srv.counters()
	}
	return counters{}, nil
}

// openAll opens contestants with the connections of p; those on one client
// library share one connection pool.
func openAll(contestants []contestant, p *process) ([]opened, func(), error) {
	var all []opened
	shut := func() {
		for _, o := range all {
			o.close()
		}
	}
	for _, c := range contestants {
		cl, err := c.open(p)
		if err != nil {
			shut()
			return nil, nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, opened{c, cl})
	}
	return all, shut, nil
}

// libraries are the contestants that are libraries.
func (s suite) libraries() []contestant {
	var out []contestant
	for _, c := range s.contestants {
		if c.name != bare {
			out = append(out, c)
		}
	}
	return out
}

func (s suite) find(name string) (contestant, error) {
	for _, c := range append(s.contestants, s.signal) {
		if c.name == name {
			return c, nil
		}
	}
	return contestant{}, fmt.Errorf("%s has no contestant %q", s.name, name)
}
