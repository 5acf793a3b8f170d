package memlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// ledger checks from outside that no two believe in the same name at once, and
// that tokens only grow.
type ledger struct {
	t     *testing.T
	mu    sync.Mutex // guards owner, until, token, turns
	owner string     // who believes in the name
	until time.Time  // for how long
	token int64
	turns int
}

func (l *ledger) enter(g driver.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != "" && time.Now().Before(l.until) {
		l.t.Errorf("%s was granted while %s holds until %v", g.Owner, l.owner, l.until)
	}
	if g.Token <= l.token {
		l.t.Errorf("token %d after %d", g.Token, l.token)
	}
	l.owner, l.until, l.token = g.Owner, g.Sent.Add(g.TTL), g.Token
	l.turns++
}

// leave forgets a holder; to be called before it lets go.
func (l *ledger) leave(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == owner {
		l.owner = ""
	}
}

// work takes turns until ctx ends or its client dies.
func (l *ledger) work(ctx context.Context, e *memlock.Engine, rnd *rand.Rand) {
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(120))*time.Second)
		g, err := e.Acquire(limit, driver.Request{Name: "x", TTL: 10 * time.Second, Wait: true})
		cancel()
		switch {
		case err == nil:
			l.enter(g)
			time.Sleep(time.Duration(rnd.IntN(12)) * time.Second)
			l.leave(g.Owner)
			err = e.Release(ctx, leaseOf("x", g))
		case errors.Is(err, driver.ErrUnavailable):
			time.Sleep(time.Second)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnavailable) {
			l.t.Error(err)
		}
	}
}

// disturb does one random thing to a client.
func disturb(e *memlock.Engine, rnd *rand.Rand) {
	switch rnd.IntN(7) {
	case 0:
		e.Freeze()
		time.Sleep(time.Duration(rnd.IntN(30)) * time.Second)
		e.Thaw()
	case 1:
		e.Refuse(errors.New("rehearsal"))
		time.Sleep(time.Second)
		e.Refuse(nil)
	case 2:
		e.Restart()
	case 3:
		e.Hang()
		time.Sleep(time.Duration(rnd.IntN(15)) * time.Second)
		e.Resume()
	default:
		time.Sleep(5 * time.Second)
	}
}

func TestExclusionUnderFaults(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{t: t}
			e := memlock.New(nil)
			ctx, cancel := context.WithCancel(t.Context())
			var clients []*memlock.Engine
			var workers sync.WaitGroup
			for i := range uint64(6) {
				c := e.Client()
				clients = append(clients, c)
				workers.Go(func() { l.work(ctx, c, rand.New(rand.NewPCG(seed, i))) }) // ends after cancel
			}
			rnd := rand.New(rand.NewPCG(seed, 99))
			for range 300 {
				disturb(clients[rnd.IntN(len(clients))], rnd)
			}
			clients[0].Kill()
			cancel()
			workers.Wait()
			time.Sleep(10 * time.Second)
			if s := only(t, e); s != nil || l.turns < 50 {
				t.Errorf("seed %d: %d turns, left behind: %+v", seed, l.turns, s)
			}
		})
	}
}
