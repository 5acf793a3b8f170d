//go:build linux

package picture_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/lab/picture"
)

// field returns what follows a key in a text of INFO.
func field(info, key string) string {
	_, value, _ := strings.Cut(info, key)
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// failover is a run in which a server dies that has granted a lock.
type failover struct {
	a, b    *actor
	from    time.Time // of the fault
	release bool      // the holder releases at the end, since it keeps its lock
	late    bool      // the other process starts after the fault
}

// play lets a hold the lock and b wait for it, calls fault, and waits until b has the lock.
func (f *failover) play(t *testing.T, o orders, before, fault func()) {
	t.Helper()
	f.a = hire(t, o)
	next := func() {
		f.b = hire(t, o)
		f.b.ask()
	}
	before()
	f.a.ask()
	f.a.until(t, "wrote")
	if !f.late {
		next()
		time.Sleep(300 * time.Millisecond) // it joins the queue
	}
	f.from = time.Now()
	fault()
	if f.late {
		next()
	}
	if f.release {
		time.Sleep(time.Until(f.from.Add(ttl + ttl/2)))
		f.a.Say("release")
		f.a.until(t, "released")
	} else {
		f.a.until(t, "lost")
	}
	f.b.until(t, "granted")
	f.b.until(t, "wrote")
}

// grants returns the grants, and checks that the tokens are in order.
func (f *failover) grants(t *testing.T) (first, second event) {
	t.Helper()
	first, _ = f.a.first("granted")
	second, _ = f.b.first("granted")
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	return first, second
}

// panel draws the run, with the fault at 0.
func (f *failover) panel(t *testing.T, title, fault, outcome string) picture.Panel {
	t.Helper()
	at := clock(f.from).at
	first, second := f.grants(t)
	end, ok := f.a.first("lost")
	if !ok {
		end, _ = f.a.first("released")
	}
	holder := picture.Lane{Name: "holder", Spans: []picture.Span{{From: at(first.At), To: at(end.At), Kind: "holds", Text: "holds"}}}
	if second.At.Before(end.At) {
		holder.Spans[0].To = at(second.At)
		holder.Spans = append(holder.Spans, picture.Span{From: at(second.At), To: at(end.At), Kind: "stale", Text: "holds, too"})
		if refused, ok := f.a.first("refused"); ok {
			holder.Marks = []picture.Mark{{At: at(refused.At), Kind: "refused", Text: "first write refused"}}
		}
	}
	return picture.Panel{
		Title: title, Outcome: outcome, Faults: []picture.Mark{{At: 0, Text: fault}},
		Lanes: []picture.Lane{holder, {Name: "successor", Spans: []picture.Span{
			{From: at(f.b.began), To: at(second.At), Kind: "waits", Text: "waits"},
			{From: at(second.At), To: patience.Seconds(), Kind: "holds", Text: "holds"}, // until the end of the picture
		}}},
	}
}

// TestRunsFailover: what becomes of a lock when the server that granted it dies and another takes
// its place.
func TestRunsFailover(t *testing.T) {
	panels := make([]picture.Panel, 4)
	var servers string
	t.Run("engines", func(t *testing.T) {
		for i, run := range []func(*testing.T) picture.Panel{sentinelForgets, quarantine, redlockNode, standby} {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				panels[i] = run(t)
			})
		}
		servers = fmt.Sprintf("Redis %s, PostgreSQL", version(t, redistest.StartRedis(t)))
	})
	if t.Failed() {
		return
	}
	var said []string
	var last float64 // grant
	for _, p := range panels {
		last = max(last, p.Lanes[1].Spans[1].From)
		said = append(said, p.Title+": "+p.Outcome)
	}
	store(t, "failover.json", picture.Timeline{
		Title: "The server that granted a lock dies", Description: strings.Join(said, " "),
		Measured: fmt.Sprintf("Recorded runs: %s. Leases and MaxTTL of %v (default: 30s)", servers, ttl),
		From:     -2, To: last + 2, Panels: panels,
	})
}

// startPair starts Sentinels with a master and a replica. before cuts the replica off, so that it
// does not receive the lock, and the master does not notice that yet. fault kills the master and
// promotes the replica.
func startPair(t *testing.T, settings ...string) (w *redistest.Sentinel, before, fault func()) {
	w = redistest.StartSentinelBehind(t, 3, (*redistest.Redis).Port, settings...)
	link, err := faults.NewProxy(w.Master().Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	_, port, _ := strings.Cut(link.Addr(), ":")
	before = func() {
		w.Replica().Replicaof(t, "127.0.0.1", port)
		w.Replica().WaitLink(t)
		for !strings.Contains(w.Master().Do(t, "INFO", "replication"), "state=online") {
			time.Sleep(10 * time.Millisecond)
		}
		link.Drop(faults.Both)
	}
	fault = func() {
		w.Master().Kill(t)
		w.Replica().Replicaof(t, "no", "one")
	}
	return w, before, fault
}

// sentinelForgets: the promoted replica does not have the lock and grants it again.
func sentinelForgets(t *testing.T) picture.Panel {
	w, before, _ := startPair(t)
	f := failover{late: true}
	const lease = 2 * ttl // the failover comes between two renewals
	f.play(t, orders{Kind: "sentinel", Addrs: w.Addrs(), File: guardedFile(t), TTL: lease, Work: 100 * time.Millisecond}, before, func() {
		w.Master().Freeze(t)
		w.Replica().Replicaof(t, "no", "one")
		w.WaitMaster(t, w.Master().Addr())
	})
	_, second := f.grants(t)
	lost, _ := f.a.first("lost")
	if _, refused := f.a.first("refused"); *recordTo != "" && !refused { // it depends on when the renewal comes
		t.Fatal("in this run no two processes held the lock; record again")
	}
	return f.panel(t, fmt.Sprintf("Redis with Sentinel, a lease of %v", lease), "master's host fails", fmt.Sprintf(
		"The replica had not received the lock. Two processes hold it for %s, until a renewal of the first one fails. Meanwhile the guard refuses the writes of the first one: its token is smaller.",
		picture.Seconds(lost.At.Sub(second.At).Seconds())))
}

// quarantine: the promoted replica grants nothing until every lease has expired.
func quarantine(t *testing.T) picture.Panel {
	seconds := strconv.Itoa(int(lag.Seconds()))
	w, before, kill := startPair(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", seconds)
	o := orders{Kind: "quarantine", Addrs: w.Addrs(), File: guardedFile(t), TTL: ttl, Work: 100 * time.Millisecond}
	initialise(t, o)
	var f failover
	f.play(t, o, before, func() {
		kill()
		w.WaitMaster(t, w.Master().Addr())
		w.Master().Restart(t) // as the replica of the new master, which accepts no writes without one
		w.Master().Replicaof(t, "127.0.0.1", strconv.Itoa(w.Replica().Port()))
	})
	_, second := f.grants(t)
	lost, _ := f.a.first("lost")
	if second.At.Before(lost.At) || second.At.Before(f.from.Add(ttl)) {
		t.Errorf("with quarantine, the lock was granted %v after the failover, and lost after %v", second.At.Sub(f.from), lost.At.Sub(f.from))
	}
	return f.panel(t, "Redis with Sentinel, quarantine=on", "master killed",
		fmt.Sprintf("The new master grants nothing for MaxTTL, the replica lag (%v) and 2 s. The context of the first holder is cancelled %s before the next grant.", lag, picture.Seconds(second.At.Sub(lost.At).Seconds())))
}

// redlockNode: a majority keeps the lock.
func redlockNode(t *testing.T) picture.Panel {
	var nodes []*redistest.Redis
	var addrs []string
	for range 3 {
		r := redistest.StartRedis(t)
		nodes, addrs = append(nodes, r), append(addrs, r.Addr())
	}
	o := orders{Kind: "redlock", Addrs: addrs, File: guardedFile(t), TTL: ttl, Work: 100 * time.Millisecond}
	initialise(t, o)
	f := failover{release: true}
	f.play(t, o, func() {}, func() {
		nodes[0].Kill(t)
		nodes[0].Restart(t) // without data
	})
	if lost, ok := f.a.first("lost"); ok {
		t.Errorf("the holder lost its lock %v after a node restarted", lost.At.Sub(f.from))
	}
	return f.panel(t, "Redlock, one of 3 nodes loses its data", "node restarted, empty",
		"Two nodes still have the lock. The empty node does not vote for MaxTTL. The lock is granted again when its holder releases it.")
}

// standby: a promoted standby grants nothing until every lease has expired.
func standby(t *testing.T) picture.Panel {
	primary := pgtest.StartPostgres(t)
	sb := primary.Standby(t)
	sb.CatchUp(t, primary)
	addrs := []string{fmt.Sprintf("127.0.0.1:%d", primary.Port()), fmt.Sprintf("127.0.0.1:%d", sb.Port())}
	var f failover
	f.play(t, orders{Kind: "postgres", Addrs: addrs, File: guardedFile(t), TTL: ttl, Work: 100 * time.Millisecond}, func() {}, func() {
		primary.Kill(t)
		sb.Promote(t)
	})
	_, second := f.grants(t)
	lost, _ := f.a.first("lost")
	if second.At.Before(lost.At) || second.At.Before(f.from.Add(ttl-time.Second)) {
		t.Errorf("the promoted standby granted the lock after %v, and it was lost after %v", second.At.Sub(f.from), lost.At.Sub(f.from))
	}
	return f.panel(t, "PostgreSQL, a standby is promoted", "primary killed",
		fmt.Sprintf("The new primary grants nothing for MaxTTL. The context of the first holder is cancelled when its connection breaks, %s before the next grant.", picture.Seconds(second.At.Sub(lost.At).Seconds())))
}

// initialise declares the servers of orders new, so that they grant locks at once.
func initialise(t *testing.T, o orders) {
	t.Helper()
	engine, err := o.open()
	if err == nil {
		err = engine.(interface{ Init(context.Context) error }).Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
