package main

import (
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// A place is the server or servers of one library, new for each trial.
type place struct {
	direct  spec            // for the successor
	proxied spec            // for the holder
	proxies []*faults.Proxy // between the holder and each server
	restart func()          // kills every server and starts it again
}

// place starts what a library needs, for leases of ttl.
func (b *bed) place(kind string, ttl time.Duration) place {
	var p place
	switch {
	case strings.Contains(kind, "etcd"):
		p = b.etcdPlace()
	case strings.Contains(kind, "river"), strings.Contains(kind, "PostgreSQL"), strings.Contains(kind, "pglock"):
		p = b.postgresPlace()
	case strings.Contains(kind, "Redlock"), strings.Contains(kind, "redsync"):
		p = b.redisPlace(3)
	default:
		p = b.redisPlace(1)
	}
	p.direct.Kind, p.proxied.Kind, p.direct.TTL, p.proxied.TTL = kind, kind, ttl, ttl
	switch kind {
	case "fencelock, Redlock", "fencelock, Redis, quarantine", "fencelock, PostgreSQL":
		initEngine(b, p.direct)
	case "river leader":
		migrateRiver(b, p.direct.Addrs[0])
	}
	return p
}

func (b *bed) redisPlace(n int) (p place) {
	var servers []*redistest.Redis
	for range n {
		r := redistest.StartRedis(b)
		proxy := b.proxy(r.Addr())
		servers, p.proxies = append(servers, r), append(p.proxies, proxy)
		p.direct.Addrs, p.proxied.Addrs = append(p.direct.Addrs, r.Addr()), append(p.proxied.Addrs, proxy.Addr())
	}
	p.restart = func() {
		for _, r := range servers {
			r.Kill(b)
		}
		for _, r := range servers {
			r.Restart(b)
		}
	}
	return p
}

func (b *bed) etcdPlace() place {
	s := startEtcd(b)
	proxy := b.proxy(s.addr)
	return place{
		direct: spec{Addrs: []string{s.addr}}, proxied: spec{Addrs: []string{proxy.Addr()}},
		proxies: []*faults.Proxy{proxy},
		restart: func() {
			s.kill()
			s.start(b)
		},
	}
}

func (b *bed) postgresPlace() place {
	pg := pgtest.StartPostgres(b)
	host := strings.SplitN(strings.SplitN(pg.DSN(), "@", 2)[1], "/", 2)[0]
	proxy := b.proxy(host)
	return place{
		direct: spec{Addrs: []string{pg.DSN()}}, proxied: spec{Addrs: []string{strings.Replace(pg.DSN(), host, proxy.Addr(), 1)}},
		proxies: []*faults.Proxy{proxy},
		restart: func() {
			pg.Kill(b)
			pg.Restart(b)
		},
	}
}
