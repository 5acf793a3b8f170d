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
// some of which only the servers tell it, and asks the harness for the proxy of each.

// addProxy starts a proxy through which a worker reaches an address.
func (a *Arena) addProxy(worker int, addr string) *faults.Proxy {
	p, err := faults.NewProxy(addr)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = p.Close() })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxies[worker] = append(a.proxies[worker], p)
	return p
}

// everyServer stands for all servers of a worker.
const everyServer = -1

// proxiesOf returns the proxies of a worker to a server, or to all.
func (a *Arena) proxiesOf(worker, server int) []*faults.Proxy {
	a.mu.Lock()
	defer a.mu.Unlock()
	if proxies := a.proxies[worker]; server == everyServer || server >= len(proxies) {
		return slices.Clone(proxies)
	}
	return a.proxies[worker][server : server+1]
}

// startResolver starts to answer a worker: it sends an address and gets that of its proxy.
func (a *Arena) startResolver(worker int) {
	resolver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = resolver.Close() })
	a.resolvers = append(a.resolvers, resolver.Addr().String())
	go func() { // ends when the resolver is closed
		for {
			conn, err := resolver.Accept()
			if err != nil {
				return
			}
			// A frozen worker keeps only itself waiting.
			if addr, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = fmt.Fprintln(conn, a.proxyTo(worker, strings.TrimSpace(addr)))
			}
			_ = conn.Close()
		}
	}()
}

// proxyTo returns the proxy of a worker to an address.
func (a *Arena) proxyTo(worker int, addr string) string {
	if i := slices.Index(a.servers.known, addr); i >= 0 {
		addr = a.servers.addrs[i]
	}
	for _, p := range a.proxiesOf(worker, everyServer) {
		if p.Target() == addr {
			return p.Addr()
		}
	}
	return a.addProxy(worker, addr).Addr()
}

// dial connects to an address through the proxy that the harness has for it.
func (j job) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	resolver, err := d.DialContext(ctx, "tcp", j.Resolver)
	if err != nil {
		return nil, err
	}
	defer resolver.Close()
	_, err = fmt.Fprintln(resolver, addr)
	proxy, err2 := bufio.NewReader(resolver).ReadString('\n')
	if err := cmp.Or(err, err2); err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", strings.TrimSpace(proxy))
}
