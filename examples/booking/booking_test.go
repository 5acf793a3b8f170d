//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

const envServer = "FENCELOCK_EXAMPLE_BOOKING"

// patience is how long a test waits for something that must happen.
const patience = 2 * time.Minute

// TestMain runs the service instead of the tests if a test has started this binary for that.
func TestMain(m *testing.M) {
	if os.Getenv(envServer) == "" {
		os.Exit(m.Run())
	}
	go func() { // ends the service when the test process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
}

// eachEngine runs a test with the locks in the database, and with the locks on Redis. The test
// gets the address of the Redis server, or "".
func eachEngine(t *testing.T, test func(t *testing.T, redisAddr string)) {
	t.Run("postgres", func(t *testing.T) { test(t, "") })
	t.Run("redis", func(t *testing.T) { test(t, redistest.StartRedis(t).Addr()) })
}

// TestNoDoubleBooking: 50 clients book rooms through several processes, one of which is killed
// every second. Clients repeat each request until it is answered, and then once more. Each request
// must have one answer, the bookings must match the answers, and no two may overlap. If
// FENCELOCK_SLOW is set, it runs for a minute.
func TestNoDoubleBooking(t *testing.T) { eachEngine(t, testNoDoubleBooking) }

func testNoDoubleBooking(t *testing.T, redisAddr string) {
	length, days := 2*time.Second, 200
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length, days = time.Minute, 3000
	}
	pg := pgtest.StartPostgres(t, "max_connections=300")
	f := newFleet(t, pg.DSN(), redisAddr, 4)
	var over atomic.Bool
	var clients sync.WaitGroup
	var mu sync.Mutex // guards answers
	answers := map[string]reply{}
	for c := range 50 {
		clients.Go(func() { // ends after length, with the answer to its last request
			for n := 0; !over.Load() && !t.Failed(); n++ {
				key := fmt.Sprintf("%d-%d", c, n)
				from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rand.N(days))
				body := fmt.Sprintf(`{"room":"%d","guest":%q,"from":%q,"to":%q}`, rand.N(4), key,
					from.Format(time.DateOnly), from.AddDate(0, 0, 1+rand.N(3)).Format(time.DateOnly))
				first := f.ask(key, body)
				if again := f.ask(key, body); again != first {
					t.Errorf("%s was answered with %v, and then with %v", body, first, again)
				}
				mu.Lock()
				answers[key] = first
				mu.Unlock()
			}
		})
	}
	f.harass(length)
	over.Store(true)
	clients.Wait()
	want := map[string]string{} // the answers of what was booked, by guest
	for key, a := range answers {
		switch a.status {
		case http.StatusCreated:
			want[key] = a.body
		case http.StatusConflict:
		default:
			t.Errorf("%s was answered with %v", key, a)
		}
	}
	for _, b := range f.list() {
		text, err := json.Marshal(b)
		if got := want[b.Guest]; err != nil || strings.TrimSpace(got) != string(text) {
			t.Errorf("%s is booked, and the answer was %q", text, got)
		}
		delete(want, b.Guest)
	}
	if len(want) > 0 {
		t.Errorf("not booked, though the answers said so: %v", want)
	}
	const overlaps = `SELECT count(*) FROM booking a JOIN booking b ON a.room = b.room AND a.id < b.id AND a.from_day < b.to_day AND b.from_day < a.to_day`
	if got := pg.Query(t, overlaps); got != "0" {
		t.Errorf("%s double bookings", got)
	}
	t.Logf("%d requests, %s booked; %d processes killed, %d attempts without an answer", len(answers), pg.Query(t, "SELECT count(*) FROM booking"), f.killed, f.unanswered.Load())
}

// reply is an HTTP response.
type reply struct {
	status int
	body   string
}

// fleet is several processes of the service.
type fleet struct {
	t          *testing.T
	url        string // of the database
	redisAddr  string
	client     *http.Client
	killed     int
	unanswered atomic.Int64

	mu      sync.Mutex // guards servers
	servers []*server
}

type server struct {
	cmd *exec.Cmd
	url string
}

func newFleet(t *testing.T, url, redisAddr string, size int) *fleet {
	t.Helper()
	f := &fleet{t: t, url: url, redisAddr: redisAddr, client: &http.Client{Timeout: patience}, servers: make([]*server, size)}
	var all sync.WaitGroup
	for i := range f.servers { // at the same time, so that they create the tables at the same time
		all.Go(func() {
			s, err := f.start()
			if err != nil {
				t.Error(err)
			}
			f.servers[i] = s
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// start starts a process and returns when it serves.
func (f *fleet) start() (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-url", f.url, "-redis", f.redisAddr, "-listen", "127.0.0.1:0", "-ttl", "2s")
	cmd.Env, cmd.Stderr = append(os.Environ(), envServer+"=1"), os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := bufio.NewScanner(out)
	said.Scan()
	url, ok := strings.CutPrefix(said.Text(), "listening on ")
	if !ok {
		return nil, fmt.Errorf("a server said %q", said.Text())
	}
	return &server{cmd, url}, nil
}

// any returns the URL of a random process.
func (f *fleet) any() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers[rand.N(len(f.servers))].url
}

// harass kills and replaces a process every second.
func (f *fleet) harass(length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end); f.killed++ {
		time.Sleep(time.Second)
		f.mu.Lock()
		i := f.killed % len(f.servers)
		old := f.servers[i]
		f.mu.Unlock()
		_ = old.cmd.Process.Kill()
		_ = old.cmd.Wait() // it was killed
		s, err := f.start()
		if err != nil {
			f.t.Error(err)
			return
		}
		f.mu.Lock()
		f.servers[i] = s
		f.mu.Unlock()
	}
}

// ask repeats a request until a process answers it.
func (f *fleet) ask(key, body string) reply {
	for end := time.Now().Add(patience); ; f.unanswered.Add(1) {
		r, err := f.try(f.any(), key, body)
		if err == nil && r.status != http.StatusServiceUnavailable {
			return r
		}
		if time.Now().After(end) {
			f.t.Errorf("%s has no answer: %v %v", body, r, err)
			return r
		}
		time.Sleep(rand.N(100 * time.Millisecond)) // the process may be gone
	}
}

func (f *fleet) try(url, key, body string) (r reply, err error) {
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, url+"/bookings", strings.NewReader(body))
	if err != nil {
		return r, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(text)}, err
}

// list returns all bookings.
func (f *fleet) list() (all []Booking) {
	f.t.Helper()
	resp, err := f.client.Get(f.any() + "/bookings")
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		f.t.Fatal(err)
	}
	return all
}

// TestFrozen: a process is stopped inside a transaction. Another process can book the room while
// the first one is still stopped.
func TestFrozen(t *testing.T) { eachEngine(t, testFrozen) }

func testFrozen(t *testing.T, redisAddr string) {
	pg := pgtest.StartPostgres(t)
	f := newFleet(t, pg.DSN(), redisAddr, 2)
	frozen, other := f.servers[0], f.servers[1]
	var over atomic.Bool
	var clients sync.WaitGroup
	book := func(url, key string, day int) (reply, error) {
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, day)
		return f.try(url, key, fmt.Sprintf(`{"room":"1","guest":"ada","from":%q,"to":%q}`,
			from.Format(time.DateOnly), from.AddDate(0, 0, 1).Format(time.DateOnly)))
	}
	for c := range 4 {
		clients.Go(func() { // ends with the answer, or the process
			for n := 0; !over.Load(); n++ {
				_, _ = book(frozen.url, fmt.Sprintf("%d-%d", c, n), n)
			}
		})
	}
	// Repeat until it is stopped while it has a row of fence_floor locked.
	for locked := ""; locked != "1"; {
		proc.Freeze(t, frozen.cmd.Process)
		locked = pg.Query(t, `SELECT count(DISTINCT pid) FROM pg_stat_activity JOIN pg_locks USING (pid)
			WHERE state = 'idle in transaction' AND relation = 'fence_floor'::regclass AND mode = 'RowExclusiveLock'`)
		if locked != "1" {
			proc.Thaw(t, frozen.cmd.Process)
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	over.Store(true)
	for end := time.Now().Add(patience); ; {
		r, err := book(other.url, "other", 5000)
		if err == nil && r.status == http.StatusCreated {
			break
		}
		if time.Now().After(end) {
			t.Errorf("while the other process is frozen: %v, %v", r, err)
			break
		}
	}
	_ = frozen.cmd.Process.Kill()
	clients.Wait()
}

// TestAnswers sends correct and incorrect requests.
func TestAnswers(t *testing.T) {
	f := newFleet(t, pgtest.StartPostgres(t).DSN(), "", 1)
	const stay = `{"room":"1","guest":"ada","from":"2026-05-01","to":"2026-05-03"}`
	for _, c := range []struct {
		key, body string
		status    int
		want      string
	}{
		{"a", stay, 201, `"guest":"ada"`},
		{"a", stay, 201, `"id":1,`},
		{"a", strings.Replace(stay, "ada", "bob", 1), 422, "used for another request"},
		{"b", strings.Replace(stay, "ada", "bob", 1), 409, "the room is taken"},
		{"b", strings.Replace(stay, "ada", "bob", 1), 409, "the room is taken"},
		{"c", strings.Replace(stay, `"1"`, `"2"`, 1), 201, `"room":"2"`},
		{"d", `{"room":"1","guest":"eve","from":"2026-05-03","to":"2026-05-04"}`, 201, `"guest":"eve"`}, // ada leaves that day
		{"e", `{"room":"1","guest":"eve","from":"2026-05-04","to":"2026-05-04"}`, 400, "Idempotency-Key"},
		{"e", `{"room":"1","guest":"eve","from":"tomorrow","to":"2026-05-04"}`, 400, "2026-05-01"},
		{"e", `{`, 400, "problem"},
		{"", stay, 400, "Idempotency-Key"},
		{"f", strings.Replace(stay, "ada", "", 1), 400, "a guest"},
		{"f", strings.Replace(stay, "ada", `a\u0000b`, 1), 400, "a guest"},
		{"f", strings.Replace(stay, `"1"`, `"\u0000"`, 1), 400, "NUL"},
		{"\xff", stay, 400, "UTF-8"},
		{strings.Repeat("e", 600), stay, 400, "512"},
	} {
		got, err := f.try(f.any(), c.key, c.body)
		if err != nil || got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%q %s: %v, %v; want %d with %q", c.key, c.body, got, err, c.status, c.want)
		}
	}
	if got := len(f.list()); got != 3 {
		t.Errorf("%d bookings, want 3", got)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-help"}, {"-ttl", "soon"}, {"-url", "::"}} {
		err := run(context.Background(), args, io.Discard)
		if err == nil || errors.Is(err, flag.ErrHelp) != (args[0] == "-help") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
