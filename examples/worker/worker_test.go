//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for the schema
	"errors"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

const envWorker = "FENCELOCK_EXAMPLE_WORKER"

// TestMain makes this binary a worker when a test starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv(envWorker) == "" {
		os.Exit(m.Run())
	}
	go func() { // ends when the test is gone, and the worker with it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
}

// State is the state of a task at the end.
type State struct {
	ID      int64
	Tries   int     // how many times it was begun
	Token   int64   // the greatest token that began it
	Results []int64 // the tokens of its results, of which there should be one
}

//go:embed postgres.sql
var schema string

func (q table) Add(ctx context.Context, length time.Duration) error {
	_, err := q.pool.Exec(ctx, "INSERT INTO worker_task (length) VALUES ($1)", length)
	return err
}

func (q table) States(ctx context.Context) ([]State, error) {
	rows, _ := q.pool.Query(ctx, `SELECT t.id, t.tries, t.token, array_remove(array_agg(r.token), NULL)
		FROM worker_task t LEFT JOIN worker_result r ON r.task = t.id GROUP BY t.id ORDER BY t.id`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[State])
}

// start starts a server and opens the queue on it, and locks.
func start(t *testing.T) (url string, q table, locks *fencelock.Locker) {
	t.Helper()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, schema)
	opened, locks, done, err := open(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return pg.DSN(), opened.(table), locks
}

// Five workers run. Every 200 ms one is killed and replaced, or frozen for longer than its lease.
// Half of them keep working after a lost lock. Every task must have one result, with the greatest
// token that ever began it.
func TestEveryResultIsWrittenOnce(t *testing.T) {
	tasks := 150
	if os.Getenv("FENCELOCK_SLOW") != "" {
		tasks = 1000
	}
	t.Parallel()
	url, q, _ := start(t)
	for range tasks {
		if err := q.Add(t.Context(), rand.N(100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	said := chaos(t, url, tasks/2)
	states, err := q.States(t.Context())
	if err != nil || len(states) != tasks {
		t.Fatalf("%d tasks, %v", len(states), err)
	}
	for _, state := range states {
		wantOneResult(t, state, said.began[state.ID])
	}
}

// wantOneResult checks a task that was begun with at least these tokens.
func wantOneResult(t *testing.T, s State, began []int64) {
	t.Helper()
	if len(s.Results) != 1 {
		t.Errorf("task %d has the results %v", s.ID, s.Results)
		return
	}
	if s.Results[0] != s.Token || len(began) > 0 && slices.Max(began) > s.Token {
		t.Errorf("task %d: the result is of token %d, but it was begun with %d and %v", s.ID, s.Results[0], s.Token, began)
	}
}

// story is what the workers logged.
type story struct {
	count map[string]int    // log lines by message
	began map[int64][]int64 // the tokens that began each task
}

// chaos runs a crew until all tasks are done, and kills or freezes workers meanwhile, at most this
// many times: on a busy machine workers may take longer to start than to be killed.
func chaos(t *testing.T, url string, most int) story {
	t.Helper()
	const ttl = time.Second
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	started := 0
	var mu sync.Mutex // guards started, frozen
	frozen := map[int]bool{}
	c := &crew{size: 5, every: 200 * time.Millisecond, args: []string{exe, "-url", url, "-ttl", ttl.String()}, out: &out}
	c.prepare = func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), envWorker+"=1")
		if _, err := cmd.StdinPipe(); err != nil { // closed when the worker or this test ends
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if started++; started%2 == 0 {
			cmd.Args = slices.Insert(cmd.Args, 1, "-careless")
		}
	}
	freezes := 0
	c.disturb = func(p *os.Process) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case frozen[p.Pid] || c.disturbed > most:
		case c.disturbed%5 == 4 && p.Signal(syscall.SIGSTOP) == nil:
			freezes++
			frozen[p.Pid] = true
			time.AfterFunc(5*ttl/2, func() {
				mu.Lock()
				defer mu.Unlock()
				delete(frozen, p.Pid)
				_ = p.Signal(syscall.SIGCONT) // it may be gone
			})
		default:
			_ = p.Kill() // it may have ended
		}
	}
	begin := time.Now()
	if err := c.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	said := listen(t, &out)
	t.Logf("%v: %d workers, %d killed, %d frozen; %v", time.Since(begin).Round(time.Millisecond), started, started-c.size, freezes, said.count)
	return said
}

var line = regexp.MustCompile(`msg="?(\w+(?: \w+)?)"? .*task=(\d+)(?: token=(\d+))?(?: error="?([^"]*))?`)

// listen reads the log of the workers.
func listen(t *testing.T, out io.Reader) story {
	t.Helper()
	s := story{count: map[string]int{}, began: map[int64][]int64{}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil || m[1] == "failed" {
			t.Logf("%s", lines.Text())
			continue
		}
		s.count[strings.TrimSpace(m[1]+" "+m[4])]++
		if m[1] == "began" {
			task, _ := strconv.ParseInt(m[2], 10, 64) // all digits
			token, _ := strconv.ParseInt(m[3], 10, 64)
			if s.began[task] = append(s.began[task], token); len(s.began[task]) > 1 {
				s.count["takeover"]++
			}
		}
	}
	return s
}

// A worker that receives SIGTERM stops its work at once and puts its task back.
func TestStopEndsTheWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url, q, locks := start(t)
	if err := q.Add(ctx, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, exe, "-url", url)
	cmd.Env = append(os.Environ(), envWorker+"=1")
	if _, err := cmd.StdinPipe(); err != nil { // closed with us
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); strings.Contains(last, "msg=began") {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	if !cmd.ProcessState.Exited() || !strings.Contains(last, "msg=ended") || !strings.Contains(last, "terminated") {
		t.Errorf("%v, after %q", cmd.ProcessState, last)
	}
	if task, err := q.Next(ctx); err != nil || task.ID != 1 {
		t.Errorf("the task does not wait: %+v, %v", task, err)
	}
	if lock, err := locks.TryAcquire(ctx, "task/1"); err != nil {
		t.Errorf("its lock is not free: %v", err)
	} else if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// late is a queue that stops its worker between the work and the result.
type late struct {
	Queue
	stop context.CancelFunc
}

func (q late) Finish(ctx context.Context, t Task, token int64, result string) error {
	q.stop()
	return q.Queue.Finish(ctx, t, token, result)
}

func TestStopLosesNoResult(t *testing.T) {
	t.Parallel()
	_, q, locks := start(t)
	if err := q.Add(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := newWorker(late{q, stop}, locks, slog.New(slog.DiscardHandler))
	if err := w.run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if states, err := q.States(t.Context()); err != nil || len(states[0].Results) != 1 {
		t.Errorf("%+v, %v", states, err)
	}
}

// The guard alone accepts and refuses tokens as documented.
func TestGuard(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, q, _ := start(t)
	if _, err := q.Next(ctx); !errors.Is(err, errNone) {
		t.Errorf("an empty queue: %v", err)
	}
	if err := q.Add(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	task, err := q.Next(ctx)
	if err != nil || task.Length != time.Second {
		t.Fatal(task, err)
	}
	begin := func(token int64) error { return q.Begin(ctx, task, token) }
	finish := func(token int64) error { return q.Finish(ctx, task, token, "result") }
	for i, step := range []struct {
		do    func(int64) error
		token int64
		want  error
	}{
		{begin, 10, nil},
		{begin, 10, errRefused},
		{begin, 9, errRefused},
		{begin, 12, nil}, // a takeover
		{finish, 10, errRefused},
		{finish, 12, nil},
		{finish, 12, errRefused},
		{finish, 13, errRefused},
		{begin, 14, errRefused},
	} {
		if err := step.do(step.token); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if states, err := q.States(ctx); err != nil || !slices.Equal(states[0].Results, []int64{12}) || states[0].Tries != 2 {
		t.Errorf("%+v, %v", states, err)
	}
	wantTaken(t, q)
}

// A task that was put back is taken again, unless it is done.
func TestPutBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, q, _ := start(t)
	if err := q.Add(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for token := int64(1); token < 3; token++ {
		task, err := q.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wantTaken(t, q, task.ID)
		if err := q.Begin(ctx, task, token); err != nil {
			t.Error(err)
		}
		if states, err := q.States(ctx); err != nil || states[0].Tries != int(token) {
			t.Errorf("%+v, %v", states, err)
		}
		if token == 2 {
			if err := q.Finish(ctx, task, token, ""); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := q.PutBack(ctx, task); err != nil {
				t.Error(err)
			}
		}
		wantTaken(t, q)
	}
	if _, err := q.Next(ctx); !errors.Is(err, errNone) {
		t.Errorf("after the result: %v", err)
	}
}

func wantTaken(t *testing.T, q Queue, want ...int64) {
	t.Helper()
	tasks, err := q.Taken(t.Context())
	var ids []int64
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	if err != nil || !slices.Equal(ids, want) {
		t.Errorf("taken: %v, %v; want %v", ids, err, want)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want error // nil means any
	}{
		{[]string{"-help"}, flag.ErrHelp},
		{[]string{"-url", "ftp://elsewhere"}, nil},
		{[]string{"-url"}, nil},
	} {
		if err := run(context.Background(), c.args, io.Discard); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
