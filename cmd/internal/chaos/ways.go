//go:build unix

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/internal/faults"
)

// A worker reaches each server through a proxy of its own. It knows the servers by their addresses,
// some of which only the servers tell it, and asks the harness for the way to each.

// addWay starts a proxy through which a worker reaches an address.
func (a *Arena) addWay(worker int, addr string) *faults.Proxy {
	p, err := faults.NewProxy(addr)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = p.Close() })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ways[worker] = append(a.ways[worker], p)
	return p
}

// everyServer stands for all servers of a worker.
const everyServer = -1

// waysOf returns the ways of a worker to a server, or to all.
func (a *Arena) waysOf(worker, server int) []*faults.Proxy {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ways := a.ways[worker]; server == everyServer || server >= len(ways) {
		return slices.Clone(ways)
	}
	return a.ways[worker][server : server+1]
}

// openGate starts to answer a worker: it sends an address and gets that of its way.
func (a *Arena) openGate(worker int) {
	gate, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = gate.Close() })
	a.gates = append(a.gates, gate.Addr().String())
	go func() { // ends when the gate is closed
		for {
			conn, err := gate.Accept()
			if err != nil {
				return
			}
			// A frozen worker keeps only itself waiting.
			if addr, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = fmt.Fprintln(conn, a.wayTo(worker, strings.TrimSpace(addr)))
			}
			_ = conn.Close()
		}
	}()
}

// wayTo returns the way of a worker to an address.
func (a *Arena) wayTo(worker int, addr string) string {
	if i := slices.Index(a.servers.known, addr); i >= 0 {
		addr = a.servers.addrs[i]
	}
	for _, p := range a.waysOf(worker, everyServer) {
		if p.Target() == addr {
			return p.Addr()
		}
	}
	return a.addWay(worker, addr).Addr()
}

// dial connects to an address on the way that the harness has for it.
func (j job) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	gate, err := d.DialContext(ctx, "tcp", j.Gate)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	_, err = fmt.Fprintln(gate, addr)
	way, err2 := bufio.NewReader(gate).ReadString('\n')
	if err := cmp.Or(err, err2); err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", strings.TrimSpace(way))
}
