package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A client is one process's use of a lock library.
type client interface {
	acquire(ctx context.Context, name string) (hold, error) // waits for the lock
	close()
}

// A hold is one acquisition.
type hold interface {
	err() error // nil for as long as the library reports the lock as held; no I/O
	release() error
}

// A spec says which client to make. It can be sent to another process.
type spec struct {
	Kind  string
	Addrs []string // of the server or servers; a DSN for PostgreSQL
	TTL   time.Duration
}

// kinds are the libraries that take part, by the names that the tables show.
var kinds = map[string]func(spec) (client, error){
	"redsync":                      openRedsync,
	"redsync, checking Until":      openRedsyncUntil,
	"bsm/redislock":                openRedislock,
	"rueidislock":                  openRueidislock,
	"etcd mutex":                   openEtcd,
	"river leader":                 openRiver,
	"cirello pglock (rewritten)":   openLease,
	"fencelock, Redis":             openFencelockRedis,
	"fencelock, Redis, quarantine": openFencelockQuarantine,
	"fencelock, Redlock":           openFencelockRedlock,
	"fencelock, PostgreSQL":        openFencelockPostgres,
}

func (s spec) open() (client, error) {
	open := kinds[s.Kind]
	if open == nil {
		return nil, fmt.Errorf("no client of kind %q", s.Kind)
	}
	return open(s)
}

// client opens a client that is closed at the end of the scenario.
func (b *bed) client(s spec) client {
	c, err := s.open()
	b.must(err)
	b.Cleanup(c.close)
	return c
}

// errLost is the loss of a lock whose library has no error for it.
var errLost = errors.New("lost")

// closed reports errLost if a library's channel is closed.
func closed(done <-chan struct{}) error {
	select {
	case <-done:
		return errLost
	default:
		return nil
	}
}
