package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

// reach makes an engine that reaches only some of the servers, as one behind a
// broken network does.
func reach(t testing.TB, w world, cfg redlock.Config, some ...int) *redlock.Engine {
	t.Helper()
	return openThrough(t, w.addrs(), cfg, func(i int, node redisconn.Conn) redisconn.Conn {
		if slices.Contains(some, i) {
			return node
		}
		return redisconn.NewLazy(func() (rueidis.Client, error) { return nil, errors.New("no route to host") })
	})
}

// TestAmnesia is the attack on Redlock: one holds A, B and C; C restarts without
// its data; another asks C, D and E. Without the quarantine there are two holders.
func TestAmnesia(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		cfg  redlock.Config
		want error
	}{
		{"with quarantine", redlock.Config{}, driver.ErrUnavailable},
		{"without", redlock.Config{NoQuarantine: true}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := startNodes(t, 5)
			first := reach(t, w, c.cfg, 0, 1, 2)
			g, _ := take(t, first, "x", long)
			w[2].Restart(t)
			other, err := try(reach(t, w, c.cfg, 2, 3, 4), "x", long)
			if !errors.Is(err, c.want) {
				t.Fatalf("the second client got %v, want %v", err, c.want)
			}
			if c.want == nil {
				verdict.Is(t, "Redlock: a node loses its data, with quarantine=off", verdict.Guarded, verdict.OfHolders(nil, g.Token, other.Token))
				if other.Token <= g.Token {
					t.Errorf("the second holder has token %d, the first %d: a guard cannot tell them apart", other.Token, g.Token)
				}
				return
			}
			verdict.Is(t, "Redlock: a node loses its data, is flushed, or fails over", verdict.Safe)
			if !strings.Contains(err.Error(), "does not vote until") {
				t.Errorf("%v does not say until when", err)
			}
		})
	}
}

// TestQuarantineEnds: nodes that forgot vote again after MaxTTL, no earlier.
func TestQuarantineEnds(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a node loses its data, is flushed, or fails over", verdict.Safe)
	for what, forget := range map[string]func(*redistest.Redis){
		"restart":  func(r *redistest.Redis) { r.Restart(t) },
		"FLUSHALL": func(r *redistest.Redis) { r.Do(t, "FLUSHALL") },
	} {
		t.Run(what, func(t *testing.T) {
			w := startNodes(t, 3)
			e := open(t, w.addrs(), redlock.Config{MaxTTL: time.Second, RetryTimeout: time.Second})
			eventually(t, "new nodes", func() bool { return e.Init(context.Background()) == nil })
			last := warmUp(t, e)
			retryAcquire(t, e, "x", time.Second)
			forgot := time.Now()
			forget(w[0])
			forget(w[1])
			var again driver.Grant
			eventually(t, "the end of the quarantine", func() bool {
				var err error
				again, err = try(e, "x", time.Second)
				return err == nil
			})
			if d := again.Sent.Sub(forgot); d < 900*time.Millisecond {
				t.Errorf("nodes voted %v after they had forgotten, MaxTTL is 1 s", d)
			}
			if again.Token <= last {
				t.Errorf("token %d after %d", again.Token, last)
			}
		})
	}
}

// TestFailoverAndBack: a replica is promoted and the old master after it, within
// one TTL. The run id is the old one again, yet the node may have forgotten.
func TestFailoverAndBack(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a node loses its data, is flushed, or fails over", verdict.Safe)
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	w[0].Do(t, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	b := redistest.StartRedisReplica(t, w[0])
	if err := open(t, w.addrs(), redlock.Config{}).Init(context.Background()); err != nil {
		t.Fatal(err) // a master's first replica gives it a new replication id
	}
	b.Replicaof(t, "127.0.0.1", "1") // cut off: it misses what follows
	_, l := take(t, e, "x", long)
	b.Replicaof(t, "no", "one")
	w[0].Replicaof(t, "127.0.0.1", strings.TrimPrefix(b.Addr(), "127.0.0.1:"))
	w[0].WaitLink(t)
	w[0].Replicaof(t, "no", "one")
	if got := w[0].Do(t, "GET", "lock:x"); got != "" {
		t.Fatalf("the node still has %q: this test does not test", got)
	}
	if _, err := try(reach(t, w, redlock.Config{}, 0, 2), "x", long); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("under a holder whom the node forgot: got %v, want ErrUnavailable", err)
	}
	// The holder gives the node its lock back, though the node does not vote.
	eventually(t, "the repair", func() bool {
		_ = e.Renew(context.Background(), []driver.Lease{l})
		return strings.Contains(w[0].Do(t, "GET", "lock:x"), l.Owner)
	})
}

// TestRepair: a node that restarted without its data gets the lock back with the
// next renewal, in quarantine or not.
func TestRepair(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "x", long)
	eventually(t, "the lock on every node", func() bool { // one that was too slow gets it with a renewal
		_ = e.Renew(context.Background(), []driver.Lease{l})
		return all(w, func(r *redistest.Redis) bool { return strings.Contains(r.Do(t, "GET", "lock:x"), l.Owner) })
	})
	w[2].Restart(t)
	eventually(t, "the repair", func() bool {
		if err := e.Renew(context.Background(), []driver.Lease{l})[0]; err != nil {
			t.Fatal(err)
		}
		return strings.Contains(w[2].Do(t, "GET", "lock:x"), l.Owner)
	})
	w[1].Restart(t)
	if err := e.Renew(context.Background(), []driver.Lease{l})[0]; err != nil {
		t.Errorf("a renewal after the other node's restart: %v", err)
	}
	release(t, e, l)
	eventually(t, "a free node", func() bool { return w[2].Do(t, "GET", "lock:x") == "" })
}

// TestNodeSets: a node refuses a client that works with other nodes.
func TestNodeSets(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 5)
	for _, cfg := range []redlock.Config{{}, {NoQuarantine: true}} {
		three := open(t, w.addrs()[:3], cfg)
		_, err := try(three, "x", time.Second)
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "another set of nodes") {
			t.Errorf("with three of five nodes: got %v, want ErrConfig that says why", err)
		}
		verdict.Is(t, "Redlock: a client lists other nodes than the others", verdict.Refused, verdict.OfError(err))
		if cfg.NoQuarantine {
			continue
		}
		other := open(t, w.addrs(), redlock.Config{Nodes: []string{"a", "b", "c", "d", "e"}})
		if _, err := try(other, "x", time.Second); !errors.Is(err, driver.ErrConfig) {
			t.Errorf("with other names: got %v, want ErrConfig", err)
		}
	}
	three := open(t, w.addrs()[:3], redlock.Config{})
	if err := three.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	take(t, three, "x", time.Second)
}

func TestNoRightToInfo(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	for _, r := range w {
		r.Do(t, "ACL", "SETUSER", "default", "-info")
	}
	begun := time.Now()
	_, err := try(open(t, w.addrs(), redlock.Config{RetryTimeout: 2 * long}), "x", time.Second)
	if !errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "+info") {
		t.Errorf("without the right to INFO: got %v, want ErrConfig that names it", err)
	}
	verdict.Is(t, "Redlock: the right to INFO is missing", verdict.Refused, verdict.OfError(err))
	if d := time.Since(begun); d > long {
		t.Errorf("it took %v to say so", d)
	}
	for _, r := range w {
		r.Do(t, "DEL", "fencelock:node")
	}
	take(t, open(t, w.addrs(), redlock.Config{NoQuarantine: true}), "y", time.Second)
}

func TestMaxTTL(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{MaxTTL: 5 * time.Second})
	if _, err := try(e, "x", 6*time.Second); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a TTL above MaxTTL: got %v, want ErrInvalid", err)
	}
	// The larger number of the deployment wins.
	if got := w[0].Do(t, "GET", "fencelock:node"); !strings.Contains(got, " 120000 ") {
		t.Errorf("the marker is %q, want the 2 min it was declared with", got)
	}
}
