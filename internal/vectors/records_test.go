package vectors

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

// swaps are the records of a server, and what was written into them.
type swaps struct {
	driver.Records
	mu   sync.Mutex
	seen []string
	last func() error // the last swap, once more
}

func (r *swaps) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	now, err := r.Records.Swap(ctx, key, value, version, ttl)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.seen = append(r.seen, string(value))
		r.last = func() error {
			_, err := r.Records.Swap(context.Background(), key, value, version, ttl)
			return err
		}
	}
	return now, err
}

// recordWorld is a store of records, and the clients of a case, each with an engine of its own.
type recordWorld struct {
	records *swaps
	engines map[string]*recordlock.Engine
	leases  map[string]driver.Lease
	waits   map[string]chan driver.Lease
}

// TestRecords replays what clients write into the records of locks.
func TestRecords(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	inner := redislock.New(client, nil)
	t.Cleanup(func() { _ = inner.Close() })
	replay(t, "records.jsonl", func(t testing.TB) world {
		server.Do(t, "FLUSHALL")
		return recordWorld{&swaps{Records: inner.Records()}, map[string]*recordlock.Engine{}, map[string]driver.Lease{}, map[string]chan driver.Lease{}}
	})
}

// separator implements world.
func (recordWorld) separator() string { return " " }

// fill implements world.
func (recordWorld) fill(testing.TB, string) (string, bool) { return "", false }

// requests are what clients ask for, by their names in the file.
var requests = map[string]driver.Request{
	"exclusive": {TTL: 30 * time.Second},
	"short":     {TTL: 500 * time.Millisecond},
	"shared":    {TTL: 30 * time.Second, Mode: driver.Shared, Limit: 2},
	"minimum":   {TTL: 30 * time.Second, MinHold: time.Minute},
}

// do implements world. The answer has the outcome, then the records that were written.
func (w recordWorld) do(t testing.TB, b *book, s step) (answer, shape string) {
	if s.Op == "" {
		return "", ""
	}
	var err error
	ctx, client, req := t.Context(), "", driver.Request{}
	if len(s.Args) > 0 {
		client = s.Args[0]
		req = requests[s.Args[len(s.Args)-1]]
		req.Name, req.Note = "job", "nightly"
	}
	e := w.engines[client]
	if e == nil {
		e = recordlock.New(w.records, nil)
		w.engines[client] = e
		t.Cleanup(func() { _ = e.Close() })
	}
	acquire := func(req driver.Request) (driver.Lease, error) {
		g, err := e.Acquire(ctx, req)
		return driver.Lease{Name: "job", Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}, err
	}
	switch s.Op {
	case "acquire":
		w.leases[client], err = acquire(req)
	case "over": // acquire, as soon as the lease of the holder is over
		for w.leases[client], err = acquire(req); errors.Is(err, driver.ErrHeld) && ctx.Err() == nil; w.leases[client], err = acquire(req) {
			time.Sleep(5 * time.Millisecond)
		}
	case "wait":
		joined, got := make(chan bool), make(chan driver.Lease, 1)
		req.Wait, req.OnWait = true, func(driver.WaitInfo) { close(joined) }
		go func() { // ends with the test, or when it has the lock
			lease, _ := acquire(req)
			got <- lease
		}()
		<-joined
		w.waits[client] = got
	case "granted":
		w.leases[client] = <-w.waits[client]
	case "renew":
		err = e.Renew(ctx, []driver.Lease{w.leases[client]})[0]
	case "release":
		err = e.Release(ctx, w.leases[client])
	case "break":
		_, err = e.Break(ctx, "job", "by the operator")
	case "resize":
		limit, _ := strconv.Atoi(s.Args[1])
		err = e.Resize(ctx, "job", limit)
	case "again": // the last swap arrives once more
		err = w.records.last()
	}
	answer = "ok"
	for word, is := range map[string]error{"held": driver.ErrHeld, "gone": driver.ErrNotHeld, "conflict": driver.ErrConflict} {
		if errors.Is(err, is) {
			answer, err = word, nil
		}
	}
	if err != nil {
		t.Fatalf("%s: %s %q: %v", b.name, s.Op, s.Args, err)
	}
	w.records.mu.Lock()
	defer w.records.mu.Unlock()
	for _, text := range w.records.seen {
		answer += "\n" + maskRecord(b, text)
	}
	w.records.seen = nil
	return answer, ""
}

var member = regexp.MustCompile(`"(\w+)":("[^"]*"|-?\d+)`)

// maskRecord replaces what varies in a record.
func maskRecord(b *book, text string) string {
	return member.ReplaceAllStringFunc(text, func(m string) string {
		name, value, _ := strings.Cut(m, ":")
		name, value = strings.Trim(name, `"`), strings.Trim(value, `"`)
		switch name {
		case "owner", "client":
			value = b.issue(name, value)
		case "last", "token", "ticket", "broken":
			value = b.issue("token", value)
		case "beat", "store", "wall", "since":
			value = "$" + name
		case "host", "pid":
			value = "$" + name
		default:
			return m
		}
		return `"` + name + `":"` + value + `"`
	})
}
