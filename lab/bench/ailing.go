package main

import (
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
)

// nodeDelay is what the slow node adds to each round trip.
const nodeDelay = 50 * time.Millisecond

// slow measures acquire and release with one node behind a slow line.
func slow(a *arena, s settings) ([]row, error) {
	addrs := a.server.(redisNodes).addrs()
	proxy, err := faults.NewProxy(addrs[len(addrs)-1])
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	proxy.Delay(faults.ToServer, nodeDelay)
	addrs[len(addrs)-1] = proxy.Addr()
	p := &process{addr: strings.Join(addrs, ",")}
	defer p.close()
	all, shut, err := openAll(a.contestants, p)
	if err != nil {
		return nil, err
	}
	defer shut()
	rounds, _, err := ailing(all, or(s, 7, 2))
	return []row{compared("one node at 50 ms: acquire and release", rounds, a.bars["slow"]...)}, err
}

// frozen measures acquire and release with one node stopped, which answers
// nothing and closes no connection.
func frozen(a *arena, _ settings) ([]row, error) {
	all, shut, err := openAll(a.contestants, a.home)
	if err != nil {
		return nil, err
	}
	defer shut()
	for _, o := range all {
		if err := loop(o.client, "ailing", 20); err != nil {
			return nil, err
		}
	}
	thaw, err := a.server.(redisNodes).freeze()
	if err != nil {
		return nil, err
	}
	defer thaw()
	rounds, first, err := ailing(all, 1)
	return []row{
		compared("one node frozen: the first acquire and release", first),
		compared("one node frozen: acquire and release", rounds, a.bars["frozen"]...),
	}, err
}

// ailing measures acquires and releases, few of those that take long, and the
// first of each contestant by itself.
func ailing(all []opened, n int) (rounds, first map[string][]float64, err error) {
	const (
		most  = 200
		limit = time.Second
	)
	name := func(o opened) string { return o.name }
	first, err = interleave(1, all, name, func(o opened) (float64, error) {
		begun := time.Now()
		err := loop(o.client, "ailing", 1)
		return time.Since(begun).Seconds(), err
	})
	if err != nil {
		return nil, nil, err
	}
	rounds, err = interleave(n, all, name, func(o opened) (float64, error) {
		var took []float64
		for begun := time.Now(); len(took) < most && time.Since(begun) < limit; {
			one := time.Now()
			if err := loop(o.client, "ailing", 1); err != nil {
				return 0, err
			}
			took = append(took, time.Since(one).Seconds())
		}
		return percentile(took, 50), nil
	})
	return rounds, first, err
}
