package conntest

import (
	"context"
	"errors"
	"net"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func testContexts(t *testing.T, _ *redistest.Redis, conn redisconn.Conn) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range conn.Eval(ctx, make3(2)) {
		if !errors.Is(r.Err, context.Canceled) {
			t.Errorf("Eval: %v", r.Err)
		}
	}
	if err := conn.Subscribe(ctx, "c", func() {}, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("Subscribe: %v", err)
	}
	if err := conn.Scan(ctx, 0, "*", func([]string) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Scan: %v", err)
	}
}

// testFrozen proves that every method returns when its context ends, though the
// server does not answer.
func testFrozen(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	canceled := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		return ctx, cancel
	}
	expired := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	both := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(100*time.Millisecond, cancel)
		return ctx, cancel
	}
	for _, limit := range []func() (context.Context, context.CancelFunc){both, canceled, expired, both, both} {
		for _, n := range []int{1, 3} {
			evalUntil(t, conn, echoCall("k", "v"))
			server.Freeze(t)
			frozenEval(t, conn, limit, n)
			server.Thaw(t)
		}
	}
	server.Freeze(t)
	defer func() {
		server.Thaw(t)
		evalAllUntil(t, conn)
	}()
	for range 3 { // the third time all connections are known to be bad
		frozenEval(t, conn, both, 1)
		frozenEval(t, conn, both, 2)
	}
	fresh := func() (context.Context, context.CancelFunc) {
		ctx, cancel := both()
		return redisconn.Fresh(ctx), cancel
	}
	frozenEval(t, conn, fresh, 1) // the dial may take longer
	frozenEval(t, conn, fresh, 2)
	frozenOthers(t, conn, both)
}

// evalAllUntil waits until no connection that the client keeps is bad.
func evalAllUntil(t *testing.T, conn redisconn.Conn) {
	t.Helper()
	for good := 0; good < 10; {
		evalUntil(t, conn, echoCall("k", "v"))
		good++
		for _, r := range conn.Eval(t.Context(), make3(3)) {
			if r.Err != nil {
				good = 0
			}
		}
	}
}

func frozenEval(t *testing.T, conn redisconn.Conn, limit func() (context.Context, context.CancelFunc), n int) {
	t.Helper()
	promptly(t, "Eval", func() {
		ctx, cancel := limit()
		defer cancel()
		replies := conn.Eval(ctx, make3(n))
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			<-ctx.Done() // its timer may fire a moment after that of the connection
		}
		for _, r := range replies {
			if ctx.Err() == nil || !errors.Is(r.Err, ctx.Err()) {
				t.Errorf("Eval of %d: %v", n, r.Err)
			}
		}
	})
}

func frozenOthers(t *testing.T, conn redisconn.Conn, limit func() (context.Context, context.CancelFunc)) {
	t.Helper()
	for name, f := range map[string]func(context.Context) error{
		"Subscribe": func(ctx context.Context) error { return conn.Subscribe(ctx, "c", func() {}, func(string) {}) },
		"Scan":      func(ctx context.Context) error { return conn.Scan(ctx, 0, "*", func([]string) error { return nil }) },
		"Each": func(ctx context.Context) error {
			answers, err := conn.Each(ctx, "PING")
			if err == nil {
				err = answers[0].Err
			}
			return err
		},
	} {
		promptly(t, name, func() {
			ctx, cancel := limit()
			defer cancel()
			if err := f(ctx); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
				t.Errorf("%s returned %v", name, err)
			}
		})
	}
}

// testConcurrent runs calls of which some are given up, and counts.
func testConcurrent(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				r := conn.Eval(ctx, []redisconn.Call{incrCall("together")})[0]
				cancel()
				if r.Err != nil {
					t.Errorf("call %d: %v", i, r.Err)
				}
			}
		})
	}
	wg.Wait()
	if got := server.Do(t, "GET", "together"); got != "3200" {
		t.Errorf("%s runs of 3200 calls", got)
	}
}

// testNothingIsLeft counts goroutines and connections around everything that has
// its own.
func testNothingIsLeft(t *testing.T, server *redistest.Redis, conn redisconn.Conn) {
	eval(t, conn, echoCall("k", "v"))
	conn.Eval(t.Context(), make3(3))
	connections := connectionsOf(t, server)
	label := t.Name() // of all goroutines that begin in here; other tests have theirs
	pprof.Do(t.Context(), pprof.Labels("test", label), func(context.Context) {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			_ = conn.Subscribe(ctx, "left", cancel, func(string) {})
			short, stop := context.WithTimeout(t.Context(), time.Microsecond)
			conn.Eval(short, make3(1))
			conn.Eval(short, make3(3))
			stop()
		}
		if goroutinesOf(t, label) == 0 {
			t.Error("this one is not counted")
		}
	})
	var g, c int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		g, c = goroutinesOf(t, label), connectionsOf(t, server)
		if g <= 10 && c <= connections+5 {
			return
		}
	}
	t.Errorf("%d goroutines are left, and %d connections became %d", g, connections, c)
}

// goroutinesOf counts those with a label.
func goroutinesOf(t *testing.T, label string) (n int) {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	_, records, _ := strings.Cut(text.String(), "\n")
	for record := range strings.SplitSeq(records, "\n\n") { // "3 @ 0x4 0x5", and maybe "# labels: {...}"
		if strings.Contains(record, strconv.Quote(label)) {
			count, _, _ := strings.Cut(record, " @ ")
			n += number(count)
		}
	}
	return n
}

func connectionsOf(t *testing.T, server *redistest.Redis) int {
	t.Helper()
	return strings.Count(server.Do(t, "CLIENT", "LIST"), "id=")
}

// testUnreachable proves that a server that takes connections and says nothing
// costs no more than the context, and that the error tells no password.
func testUnreachable(t *testing.T, m Maker) {
	server := redistest.StartRedis(t)
	conn := m.Single(t, server.Addr())
	eval(t, conn, echoCall("k", "v"))
	server.Stop(t)
	for range 3 {
		for _, r := range conn.Eval(t.Context(), make3(2)) {
			if r.Err == nil || strings.Contains(r.Err.Error(), "\n") {
				t.Errorf("stopped server: %v", r.Err)
			}
		}
	}
	ln, err := net.Listen("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, n := range []int{1, 2} {
		promptly(t, "Eval at a silent server", func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(200*time.Millisecond, cancel)
			if r := conn.Eval(ctx, make3(n))[0]; r.Err == nil {
				t.Errorf("silent server: %q", r.Text)
			}
		})
	}
}
