//go:build linux

package picture_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/lab/picture"
)

// TestRunsFrozenHolder: a holder is frozen for longer than its lease. Another process acquires the
// lock, with a greater token, and the guard refuses the write of the first.
func TestRunsFrozenHolder(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	const lease = 4 * time.Second
	o := orders{Kind: "redis", Addrs: []string{server.Addr()}, File: guardedFile(t), TTL: lease, Work: 900 * time.Millisecond}
	a := hire(t, o)
	o.Work *= 2
	b := hire(t, o)
	a.ask()
	first := a.until(t, "granted")
	a.until(t, "wrote")
	b.ask()
	a.until(t, "wrote")
	time.Sleep(300 * time.Millisecond) // it works on its next write
	frozen := time.Now()
	a.signal(t, syscall.SIGSTOP)
	second := b.until(t, "granted")
	b.until(t, "wrote")
	b.until(t, "wrote")
	time.Sleep(o.Work / 2) // it works on its next write, too
	thawed := time.Now()
	a.signal(t, syscall.SIGCONT)
	a.until(t, "refused")
	lost := a.until(t, "lost")
	last := b.until(t, "wrote")
	if second.Token <= first.Token || second.At.Before(frozen) || second.At.After(thawed) {
		t.Errorf("frozen at %v, continued at %v; grants %+v, %+v", frozen, thawed, first, second)
	}
	c := clock(first.At)
	at := c.at
	store(t, "frozen.json", picture.Timeline{
		Title: "A frozen holder, its successor, and the late write",
		Description: fmt.Sprintf("Worker A acquires the lock with token %d and writes. It is frozen for %s. Its lease expires, and worker B acquires the lock with the greater token %d and writes. "+
			"When worker A continues, it writes once more, and the file refuses that write. Then its context is cancelled.", first.Token, picture.Seconds(at(thawed)-at(frozen)), second.Token),
		Measured: fmt.Sprintf("A recorded run: three processes, Redis %s, a lease of %v", version(t, server), lease),
		To:       at(last.At) + 0.4,
		Panels: []picture.Panel{{
			Lanes: []picture.Lane{
				{Name: "worker A", Spans: []picture.Span{
					{To: at(frozen), Kind: "holds", Text: "holds", Note: fmt.Sprint("token ", first.Token)},
					{From: at(frozen), To: at(thawed), Kind: "frozen", Text: "frozen (SIGSTOP)"},
				}, Marks: []picture.Mark{{At: at(lost.At), Kind: "refused", Text: "lock lost"}}},
				{Name: "Redis", Spans: []picture.Span{
					{To: at(second.At), Kind: "lease", Text: "lease of A"},
					{From: at(second.At), To: at(last.At) + 0.4, Kind: "lease", Text: "lease of B"},
				}},
				{Name: "worker B", Spans: []picture.Span{
					{From: at(b.began), To: at(second.At), Kind: "waits", Text: "waits"},
					{From: at(second.At), To: at(last.At) + 0.4, Kind: "holds", Text: "holds", Note: fmt.Sprint("token ", second.Token)},
				}},
				{Name: "guarded file", Marks: writes(a, b, c)},
			},
			Faults: []picture.Mark{{At: at(frozen), Text: "A is frozen"}, {At: at(thawed), Text: "A continues"}},
			Outcome: fmt.Sprintf("A had checked its lock and was working. It continues %s after B has acquired the lock, and writes. The guard has stored a greater token and refuses the write. Then A's context is cancelled.",
				picture.Seconds(at(thawed)-at(second.At))),
		}},
	})
}

// writes are the marks of all writes of two workers.
func writes(a, b *actor, c clock) (all []picture.Mark) {
	for i, w := range []*actor{a, b} {
		for _, e := range w.seen {
			switch e.What {
			case "wrote":
				all = append(all, picture.Mark{At: c.at(e.At), Kind: "accepted", Text: string(rune('A' + i))})
			case "refused":
				all = append(all, picture.Mark{At: c.at(e.At), Kind: "refused", Text: "A refused"})
			}
		}
	}
	return all
}

// version returns the version of a Redis.
func version(t *testing.T, r *redistest.Redis) string {
	t.Helper()
	var v string
	if _, err := fmt.Sscanf(field(r.Do(t, "INFO", "server"), "redis_version:"), "%s", &v); err != nil {
		t.Fatal(err)
	}
	return v
}
