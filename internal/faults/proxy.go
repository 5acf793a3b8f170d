// Package faults simulates network faults that a lock must survive: a TCP proxy that loses, delays,
// slows down, stalls, resets and refuses on command.
//
// Rules apply to single requests, because the proxy parses the protocols of Redis, PostgreSQL and
// MySQL. The worst fault is late delivery, a request that reaches the server long after its client
// has given up:
//
//	p, _ := faults.NewProxy(server.Addr())
//	held := p.HoldNext("lock:job")          // the next request about lock:job
//	_, err := engine.Acquire(brief, req)    // sends it, and gives up
//	<-held.Caught()
//	held.ResetClients()                     // its client's connection is reset
//	again, _ := engine.Acquire(ctx, req)    // on another connection, which works
//	_ = engine.Release(ctx, lease(again))
//	held.Deliver()                          // the server receives the first request now
//	<-held.Answered()                       // and has answered it
//	held.End()                              // and receives the end of the connection
//
// With many requests, p.Late("lock:", 3*time.Second) does the same to each one. [Proxy.Stall] is a
// partition that loses nothing: Heal delivers what was sent.
package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
)

// A Direction is a direction through a proxy, or both.
type Direction uint8

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// index is the place of a single direction in an array of both.
func (d Direction) index() int { return int(d) - 1 }

// A Proxy forwards the connections of clients to one server. It is safe for concurrent use,
// including from hooks.
type Proxy struct {
	target, addr string

	ctx  context.Context // ends with Close
	stop func()
	work sync.WaitGroup // every goroutine of the proxy

	mu      sync.Mutex   // guards all below, and a part of each link
	ln      net.Listener // nil while new connections are refused
	links   []*Link      // in the order in which they were made
	drop    Direction
	stalled Direction
	paces   [2]pace
	rules   []*rule
}

// NewProxy starts a proxy for the server at target, "host:port", which need not run yet. The caller
// must close it.
func NewProxy(target string) (*Proxy, error) {
	ln, err := listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, addr: ln.Addr().String()}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.serve(ln)
	return p, nil
}

// listen takes a free port below the range of ports for outgoing connections. Otherwise, while the
// proxy refuses connections, a client that keeps dialling could get this port as its own local port
// and connect to itself.
func listen() (ln net.Listener, err error) {
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(22000))
		if ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return ln, nil
		}
	}
	return nil, fmt.Errorf("no free port on 127.0.0.1 between 10000 and 32000: %w", err)
}

// serve accepts connections on ln. The caller holds mu, or is alone.
func (p *Proxy) serve(ln net.Listener) {
	p.ln = ln
	p.work.Go(func() { // ends when ln is closed
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.connect(c.(*net.TCPConn)) })
		}
	})
}

// Addr returns the address for clients, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.addr }

// Target returns the address of the server.
func (p *Proxy) Target() string { return p.target }

// Close resets every connection and releases the port. It returns when all of the proxy's
// goroutines have ended, so hooks must not call it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.stop()
	p.refuse()
	p.reset(everyLink)
	p.mu.Unlock()
	p.work.Wait()
	return nil
}

// Drop discards everything in the given directions and closes nothing: a silent partition.
// Everything that is sent meanwhile is lost, including the end of a connection. A connection that
// has lost something therefore stays silent in that direction and is reset when the partition ends;
// it never delivers part of what was sent. Connections made meanwhile are accepted, do not reach
// the server, and end the same way. Drop(0) ends a partition like Heal, and changes nothing else.
// Data that the proxy is forwarding when Drop is called may still arrive.
func (p *Proxy) Drop(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := p.drop &^ d
	p.drop = d
	p.reset(func(l *Link) bool { return l.lost&ended != 0 })
}

// Lost returns how many connections have lost something, or were made, in the current partition.
// Its end resets them.
func (p *Proxy) Lost() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.lost != 0 {
			n++
		}
	}
	return n
}

// Reset resets both sides of every connection, like a firewall. Requests that the server has not
// read yet are lost. New connections are served.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset(everyLink)
}

func everyLink(*Link) bool { return true }

// reset cuts the connections for which which returns true. The caller holds mu.
func (p *Proxy) reset(which func(*Link) bool) {
	for _, l := range slices.Clone(p.links) {
		if which(l) {
			l.cut()
		}
	}
}

// Refuse makes new connections fail as if nothing listened, until Heal. Existing ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse()
}

func (p *Proxy) refuse() {
	if p.ln != nil {
		_ = p.ln.Close()
		p.ln = nil
	}
}

// Heal ends Drop, Stall, Delay, Slow, Lossy and Refuse: new connections are served, and those that lost nothing
// continue. It returns an error if another program has taken the port meanwhile. Rules about
// requests stay.
func (p *Proxy) Heal() error {
	p.Drop(0)
	p.Resume()
	p.setPace(Both, func(to *pace) { *to = pace{} })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil || p.ctx.Err() != nil {
		return nil
	}
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	p.serve(ln)
	return nil
}
