package conntest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func testReplicas(t *testing.T, m Maker) {
	master := redistest.StartRedis(t)
	replica := redistest.StartRedisReplica(t, master)
	conn := m.Single(t, master.Addr())
	c := incrCall("replicated")
	c.Replicas = 1
	replicas := func(limit time.Duration) (redisconn.Reply, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		r := conn.Eval(ctx, []redisconn.Call{c})[0]
		return r, ctx.Err()
	}
	for i := 1; i <= 3; i++ {
		r, _ := replicas(20 * time.Second)
		if r.Err != nil || r.Text != strconv.Itoa(i) || r.Replicas != 1 {
			t.Errorf("with a replica: %+v", r)
		}
	}
	replica.Freeze(t)
	r, ended := replicas(2 * time.Second)
	for limit := 4 * time.Second; ended != nil && limit < time.Minute; limit *= 2 { // a tenth of it was too short
		r, ended = replicas(limit)
	}
	replica.Thaw(t)
	if r.Err != nil || r.Replicas != 0 || ended != nil {
		t.Errorf("with a frozen replica: %+v, %v", r, ended)
	}
	many := conn.Eval(t.Context(), []redisconn.Call{echoCall("a", "1"), c, echoCall("b", "2")})
	if many[0].Text != "1" || many[1].Text != master.Do(t, "GET", "replicated") || many[1].Replicas != 1 || many[2].Text != "2" {
		t.Errorf("among others: %+v", many)
	}
}

// slotted is a key for each of the three masters.
var slotted = []string{"a", "b", "c", "d", "e", "f", "g"}

func testCluster(t *testing.T, m Maker) {
	cluster := redistest.StartRedisCluster(t, 3)
	conn := m.Cluster(t, cluster.Addrs()[:1])
	if !conn.Cluster() {
		t.Error("Cluster is false")
	}
	var calls []redisconn.Call
	for i := range 100 {
		key := slotted[i%len(slotted)]
		calls = append(calls, redisconn.Call{Script: redisconn.NewScript(`return KEYS[1] .. ARGV[1]`), Keys: []string{key}, Args: []string{strconv.Itoa(i)}})
	}
	for i, r := range conn.Eval(t.Context(), calls) {
		if want := slotted[i%len(slotted)] + strconv.Itoa(i); r.Err != nil || r.Text != want {
			t.Errorf("reply %d: %q, %v; want %q", i, r.Text, r.Err, want)
		}
	}
	for _, key := range slotted {
		eval(t, conn, incrCall(key))
	}
	if seen := scan(t, conn, "?"); len(seen) != len(slotted) {
		t.Errorf("Scan saw %v", seen)
	}
	answers, err := conn.Each(t.Context(), "PING")
	if err != nil || len(answers) != 3 || answers[0].Text != "PONG" || answers[0].Node == answers[1].Node {
		t.Errorf("Each: %+v, %v", answers, err)
	}
	l := listen(t, conn, "everywhere")
	for i, node := range cluster.Nodes() {
		node.Do(t, "PUBLISH", "everywhere", strconv.Itoa(i))
		l.want(t, strconv.Itoa(i))
	}
	l.stop()
	if err := l.end(t, 9*time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("Subscribe returned %v", err)
	}
}

// within makes one call with a time limit.
func within(t *testing.T, conn redisconn.Conn, limit time.Duration, c redisconn.Call) redisconn.Reply {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return conn.Eval(ctx, []redisconn.Call{c})[0]
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// testClusterMoves follows a slot while it moves and after.
func testClusterMoves(t *testing.T, m Maker) {
	cluster := redistest.StartRedisCluster(t, 3)
	conn := m.Cluster(t, cluster.Addrs())
	slot := cluster.Slot(t, "moving")
	from := cluster.Owner(t, slot)
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	n := 0
	count := func(when string, replicas int) {
		t.Helper()
		c := incrCall("moving")
		c.Replicas = replicas
		limit := time.Minute
		if replicas > 0 {
			limit = 4 * time.Second // of which replicas get all but a tenth
		}
		n++
		r := within(t, conn, limit, c)
		for replicas > 0 && r.Err != nil && limit < time.Minute { // that was too short
			limit *= 2
			r = within(t, conn, limit, c)
			n = max(n, number(r.Text))
		}
		if r.Err != nil || r.Text != strconv.Itoa(n) {
			t.Errorf("%s, %d replicas: %q, %v; want %d", when, replicas, r.Text, r.Err, n)
		}
	}
	batch := func(when string) {
		t.Helper()
		calls := []redisconn.Call{incrCall("moving"), echoCall("a", "x"), incrCall("moving")}
		replies := conn.Eval(t.Context(), calls)
		n += 2
		if replies[1].Text != "x" || replies[2].Text != strconv.Itoa(n) {
			t.Errorf("%s: %+v", when, replies)
		}
	}
	count("before", 0)
	cluster.BeginMigration(t, slot, from, to)
	count("with the key still here", 0)
	batch("with the key still here")
	cluster.MoveKeys(t, slot, from, to, "moving")
	count("asked", 0)
	count("asked", 1)
	batch("asked")
	cluster.EndMigration(t, slot, from, to)
	count("moved", 0)
	count("moved", 1)
	batch("moved")
	if got := to.Do(t, "GET", "moving"); got != strconv.Itoa(n) {
		t.Errorf("%s runs of %d calls", got, n)
	}
}

func testFailover(t *testing.T, m Maker) {
	s := redistest.StartSentinel(t, 3)
	conn := m.Sentinel(t, s.Addrs(), s.MasterName())
	eval(t, conn, incrCall("k"))
	l := listen(t, conn, "failover")
	old := s.Master()
	old.Kill(t)
	if err := l.end(t, 30*time.Second); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the subscription ended with %v", err)
	}
	s.WaitMaster(t, old.Addr())
	evalUntil(t, conn, echoCall("k", "new"))
	heard := listenUntil(t, conn, "failover")
	s.Replica().Do(t, "PUBLISH", "failover", "hello")
	heard.want(t, "hello")
	heard.stop()
}

// listenUntil subscribes as soon as that works.
func listenUntil(t *testing.T, conn redisconn.Conn, channel string) *listener {
	t.Helper()
	var last error
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		l := &listener{messages: make(chan string, 1), ended: make(chan error, 1), stop: cancel}
		ready := make(chan struct{})
		go func() { // ends with the subscription
			l.ended <- conn.Subscribe(ctx, channel, func() { close(ready) }, func(text string) { l.messages <- text })
		}()
		select {
		case <-ready:
			return l
		case last = <-l.ended:
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Fatal(fmt.Errorf("Subscribe: %w", last))
	return nil
}
