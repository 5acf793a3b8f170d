package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/check"
)

// op is a call of one name, in seconds.
func op(client int, kind check.Kind, call, end int, token int64) check.Op {
	return check.Op{Client: client, Name: "n", Kind: kind, OK: true, Token: token,
		Call: time.Duration(call) * time.Second, Return: time.Duration(end) * time.Second}
}

func acquire(client, call, end int, token int64, until int) check.Op {
	o := op(client, check.Acquire, call, end, token)
	o.Until = time.Duration(until) * time.Second
	return o
}

func value(o check.Op, v int64) check.Op { o.Value = v; return o }
func refused(o check.Op) check.Op        { o.OK = false; return o }
func unknown(o check.Op) check.Op        { o.OK, o.Unknown = false, true; return o }

// judge checks a history and the picture that a bad one leaves.
func judge(t *testing.T, f func([]check.Op, string) error, history []check.Op, good bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "check")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "history.html")
	err = f(history, path)
	if (err == nil) != good {
		t.Fatalf("%v, want good = %v", err, good)
	}
	if page, bad := os.ReadFile(path); good != (bad != nil) || !good && !strings.Contains(string(page), "<html") {
		t.Errorf("a picture of %d bytes (%v) for a history with good = %v", len(page), bad, good)
	}
}

func TestTryLock(t *testing.T) {
	for name, c := range map[string]struct {
		history []check.Op
		good    bool
	}{
		"in turn":              {good: true, history: []check.Op{acquire(1, 0, 1, 5, 30), refused(acquire(2, 1, 2, 0, 0)), op(1, check.Release, 3, 4, 5), acquire(2, 3, 5, 6, 35)}},
		"two holders":          {history: []check.Op{acquire(1, 0, 1, 5, 30), acquire(2, 2, 3, 6, 35)}},
		"after the deadline":   {good: true, history: []check.Op{acquire(1, 0, 1, 5, 30), acquire(2, 2, 30, 6, 60)}},
		"before the deadline":  {history: []check.Op{acquire(1, 0, 1, 5, 30), acquire(2, 2, 29, 6, 60)}},
		"a token twice":        {history: []check.Op{acquire(1, 0, 1, 5, 30), op(1, check.Release, 2, 3, 5), acquire(2, 4, 5, 5, 60)}},
		"a lost release":       {good: true, history: []check.Op{acquire(1, 0, 1, 5, 30), unknown(op(1, check.Release, 2, 3, 5)), acquire(2, 4, 5, 6, 60)}},
		"a late release":       {history: []check.Op{acquire(1, 0, 1, 5, 6), acquire(2, 7, 8, 6, 60), op(1, check.Release, 9, 10, 5), acquire(3, 11, 12, 7, 70)}},
		"an acquire in flight": {good: true, history: []check.Op{unknown(acquire(1, 0, 1, 0, 0)), acquire(2, 2, 3, 6, 60)}},
	} {
		t.Run(name, func(t *testing.T) { judge(t, check.TryLock, c.history, c.good) })
	}
}

func TestRegister(t *testing.T) {
	write := func(client, call, end int, token, v int64) check.Op {
		return value(op(client, check.Write, call, end, token), v)
	}
	read := func(client, call, end int, v int64) check.Op {
		return value(op(client, check.Read, call, end, 0), v)
	}
	for name, c := range map[string]struct {
		history []check.Op
		good    bool
	}{
		"in turn":            {good: true, history: []check.Op{write(1, 0, 1, 5, 10), write(2, 2, 3, 6, 20), read(3, 4, 5, 20)}},
		"a stale write":      {good: true, history: []check.Op{write(2, 0, 1, 6, 20), refused(write(1, 2, 3, 5, 10)), read(3, 4, 5, 20)}},
		"it got through":     {history: []check.Op{write(2, 0, 1, 6, 20), write(1, 2, 3, 5, 10), read(3, 4, 5, 10)}},
		"refused for no why": {history: []check.Op{write(2, 0, 1, 6, 20), refused(write(1, 2, 3, 7, 10))}},
		"a lost answer":      {good: true, history: []check.Op{write(1, 0, 1, 5, 10), unknown(write(2, 2, 3, 6, 20)), read(3, 4, 5, 10), read(3, 6, 7, 20), refused(write(1, 8, 9, 5, 11))}},
		"a lost write":       {history: []check.Op{write(1, 0, 1, 5, 10), read(3, 4, 5, 0)}},
	} {
		t.Run(name, func(t *testing.T) { judge(t, check.Register, c.history, c.good) })
	}
}

func TestTooLong(t *testing.T) {
	history := make([]check.Op, check.MaxOps+1)
	if err := check.TryLock(history, ""); err == nil || !strings.Contains(err.Error(), "more than 500") {
		t.Errorf("%v, want a refusal", err)
	}
}
