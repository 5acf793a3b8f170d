package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// night is the log of a service on two hosts. A loses its lock, B is granted it, and A's late write is
// refused.
const night = `{"time":"2026-01-02T03:00:00Z","level":"INFO","msg":"started"}
not JSON
{"time":"2026-01-02T03:00:01.000Z","msg":"lock acquired","name":"report","token":7,"host":"a"}
{"time":"2026-01-02T03:00:02.000Z","msg":"write accepted","name":"report","token":7,"host":"a"}
{"time":"2026-01-02T03:00:30.000Z","msg":"lock lost","name":"report","token":7,"host":"a","deadline":"2026-01-02T03:00:10.000Z"}
{"time":"2026-01-02T03:00:11.000Z","msg":"lock acquired","name":"report","token":8,"host":"b"}
{"time":"2026-01-02T03:00:12.000Z","msg":"write accepted","name":"report","token":8,"host":"b"}
{"time":"2026-01-02T03:00:31.000Z","msg":"write refused","name":"report","token":7,"host":"a"}
{"time":"2026-01-02T03:00:32.000Z","msg":"lock released","name":"report","token":8,"host":"b"}
{"lock":"other","token":"3","acquired":"2026-01-02T03:00:01Z","released":"2026-01-02T03:00:05Z","pod":"a"}
{"lock":"other","token":"4","acquired":1767322805000000000,"released":1767322806000000000,"pod":"b"}
{"time":"2026-01-02T03:00:50Z","level":"DEBUG","msg":"acquire","name":"other","token":5,"error":null,"host":"b"}
{"time":"2026-01-02T03:00:51Z","level":"DEBUG","msg":"acquire","name":"other","token":0,"error":"held","host":"a"}
`

func verify(t *testing.T, log string, skew time.Duration) history.Verdict {
	t.Helper()
	h, err := history.ReadLog(strings.NewReader(log), skew)
	if err != nil {
		t.Fatal(err)
	}
	return h.Verify()
}

func TestLogIsAccepted(t *testing.T) {
	for _, skew := range []time.Duration{0, 100 * time.Millisecond} {
		v := verify(t, night, skew)
		if !v.Accepted || v.Acquisitions != 5 || v.Names != 2 || v.Writes != 3 || v.Open != 1 {
			t.Errorf("skew %v: %+v", skew, v)
		}
	}
}

// TestLogOfAnEngine: the first line of a log may begin as that of a run does.
func TestLogOfAnEngine(t *testing.T) {
	if v := verify(t, `{"engine":"redis","msg":"started"}`+"\n"+night, 0); !v.Accepted || v.Acquisitions != 5 {
		t.Errorf("%+v", v)
	}
}

// TestLogIsRefused changes one thing of the log at a time.
func TestLogIsRefused(t *testing.T) {
	for _, c := range []struct {
		what, old, new string
		invariant      int
	}{
		{"a grant before the holder's end", "03:00:11.000Z", "03:00:09.000Z", 1},
		{"a loss that was noticed late", `,"deadline":"2026-01-02T03:00:10.000Z"`, "", 3},
		{"a smaller token", `"token":8`, `"token":6`, 2},
		{"the same token twice", `"token":"4"`, `"token":"3"`, 2},
		{"a release after the next grant", "1767322805000000000", "1767322804000000000", 1},
		{"a late write is accepted", "write refused", "write accepted", 9},
	} {
		log := strings.ReplaceAll(night, c.old, c.new)
		if log == night {
			t.Fatalf("%s: nothing has changed", c.what)
		}
		v := verify(t, log, 0)
		of := func(r history.Refusal) bool { return r.Invariant == c.invariant && r.Assumption != "" }
		if v.Accepted || !slices.ContainsFunc(v.Refused, of) {
			t.Errorf("%s: want invariant %d broken, got %+v", c.what, c.invariant, v)
		}
	}
}

// TestLogSkew moves the clock of one host.
func TestLogSkew(t *testing.T) {
	for _, late := range []time.Duration{40, 60} {
		at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
		line := func(what string, token int, host string, at time.Time) string {
			return fmt.Sprintf("{\"time\":%q,\"msg\":%q,\"name\":\"n\",\"token\":%d,\"host\":%q}\n", at.Format(time.RFC3339Nano), what, token, host)
		}
		log := line("acquired", 1, "a", at) + line("released", 1, "a", at.Add(time.Second)) +
			line("acquired", 2, "b", at.Add(time.Second-late*time.Millisecond)) + line("released", 2, "b", at.Add(2*time.Second))
		if v := verify(t, log, 50*time.Millisecond); v.Accepted != (late < 50) {
			t.Errorf("%d ms too early with a skew of 50 ms: %+v", late, v)
		}
		quick := line("acquired", 2, "b", at) + line("released", 2, "b", at.Add(10*time.Millisecond)) + // b's clock is early
			line("acquired", 1, "a", at.Add(late*time.Millisecond)) + line("released", 1, "a", at.Add(late*time.Millisecond+5*time.Millisecond))
		if v := verify(t, quick, 50*time.Millisecond); v.Accepted != (late < 50) {
			t.Errorf("a smaller token %d ms later with a skew of 50 ms: %+v", late, v)
		}
	}
}

func TestLogWithoutTimes(t *testing.T) {
	_, err := history.ReadLog(strings.NewReader("\n{\"msg\":\"lock acquired\",\"name\":\"n\",\"token\":1}\n"), 0)
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// TestReadLogOfARun: what Write wrote is read as it is, without the skew of logs.
func TestReadLogOfARun(t *testing.T) {
	h, err := history.ReadLog(strings.NewReader(night), 0)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := h.Write(&text); err != nil {
		t.Fatal(err)
	}
	again, err := history.ReadLog(strings.NewReader(text.String()), time.Second)
	if err != nil || len(again.Acquisitions) != len(h.Acquisitions) || again.Engine != h.Engine || again.Rules != h.Rules {
		t.Errorf("%d acquisitions of %d, %+v, %v", len(again.Acquisitions), len(h.Acquisitions), again.Rules, err)
	}
}
