//go:build unix

package idempotent_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/idempotent/idempotentpgx"
	"github.com/fencelock/fencelock/internal/reexec"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

func TestMain(m *testing.M) {
	reexec.Main(map[string]reexec.Job{"worker": reexec.Of(work)})
	os.Exit(m.Run())
}

// patience is how long anything may take that must happen at all.
const patience = 2 * time.Minute

// TestDeliveries: jobs are delivered to workers over and over, while every 50 ms a worker
// is killed in the middle of one, or frozen for longer than a lease. Each job is done, all
// its deliveries have one result, no two runs overlap, and none begins after one was
// completed. With FENCELOCK_SLOW set, 1,000 deliveries of 100 jobs to 8 workers on every
// engine that keeps records.
func TestDeliveries(t *testing.T) {
	kinds := []string{"files", "redis"}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		kinds = []string{"files", "redis", "postgres"}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, orders{Store: engines.Start(t, kind, jobLease)})
			for job, result := range o.run() {
				o.auditJob(job, result)
			}
		})
	}
}

// TestDeliveriesInTransactions is TestDeliveries for jobs whose effect is in the
// transaction that notes them: it is there once.
func TestDeliveriesInTransactions(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, idempotentpgx.Schema(), "CREATE TABLE effect (id bigserial, job text NOT NULL)")
	o := newOffice(t, orders{Store: engines.Store{Kind: "postgres", At: pg.DSN()}, Transaction: true})
	for job, result := range o.run() {
		if got := pg.Query(t, "SELECT string_agg(id::text, ' ') FROM effect WHERE job = '"+job+"'"); got != result {
			t.Errorf("%s: the effects are %q, and the result is %s", job, got, result)
		}
	}
	if got := pg.Query(t, "SELECT count(*) FROM effect"); got != strconv.Itoa(o.jobs) {
		t.Errorf("%s effects, want %d", got, o.jobs)
	}
}

// TestFrozenWorker: on the engines with leases, a worker that was frozen for longer than
// its lease finds its completion refused, and what its successor has stored stays. On
// files it keeps its key, and those who wait get its outcome when it goes on.
func TestFrozenWorker(t *testing.T) {
	for _, kind := range []string{"files", "redis", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, orders{Store: engines.Start(t, kind, jobLease)})
			frozen, next := o.hire(), o.hire()
			if t.Failed() {
				return
			}
			frozen.Say("hold")
			frozen.want(t, "begun")
			proc.Freeze(t, frozen.Process())
			next.Say("hold")
			if kind == "files" {
				pause(t.Context(), 3*jobLease/2)
				proc.Thaw(t, frozen.Process())
				frozen.Say("go")
				done := frozen.Hear()
				next.want(t, done)
				return
			}
			next.want(t, "begun")
			next.Say("go")
			done := next.Hear()
			proc.Thaw(t, frozen.Process())
			frozen.Say("go")
			frozen.want(t, "lost")
			frozen.Say("hold")
			frozen.want(t, done)
			if !strings.HasPrefix(done, "done ") {
				t.Errorf("the successor said %q", done)
			}
		})
	}
}

// An office delivers jobs to workers. A delivery that was not done comes again.
type office struct {
	t                *testing.T
	orders           orders
	jobs, each, size int

	queue chan string
	done  chan struct{} // closed when every delivery was done

	mu      sync.Mutex // guards what follows
	left    int        // deliveries
	results map[string]string
	busy    []*clerk // who has a delivery now
	lost    int      // completions

	killed, frozen int // workers
}

// newOffice returns an office whose workers share an engine.
func newOffice(t *testing.T, with orders) *office {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-deliveries-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	with.Dir = dir
	o := &office{t: t, orders: with, jobs: 8, each: 4, size: 4}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		o.jobs, o.each, o.size = 100, 10, 8
	}
	return o
}

// A clerk is a worker that is now and then frozen.
type clerk struct {
	*reexec.Worker
	still bool // frozen; the office's mutex guards it
}

// want fails the test unless the worker's next line is line.
func (c *clerk) want(t *testing.T, line string) {
	t.Helper()
	if got := c.Hear(); got != line {
		t.Fatalf("a worker said %q, want %q", got, line)
	}
}

// hire starts a worker, or fails the test and returns nil. It ends with the test.
func (o *office) hire() *clerk {
	w, err := reexec.Start("worker", o.orders)
	if err != nil {
		o.t.Error(err)
		return nil
	}
	o.t.Cleanup(func() { w.Kill() })
	if got := w.Hear(); got != "ready" {
		o.t.Errorf("a worker said %q, and not that it is ready", got)
		return nil
	}
	return &clerk{Worker: w}
}

// run makes all deliveries, and returns the result of each job.
func (o *office) run() map[string]string {
	o.t.Helper()
	o.left = o.jobs * o.each
	o.queue, o.done, o.results = make(chan string, o.left), make(chan struct{}), map[string]string{}
	for _, i := range rand.Perm(o.left) {
		o.queue <- fmt.Sprint("job-", i%o.jobs)
	}
	begun := time.Now()
	var all sync.WaitGroup
	for range o.size {
		all.Go(func() { o.serve(o.hire()) }) // ends when every delivery was done, or the test has failed
	}
	o.disturb()
	all.Wait()
	if len(o.results) != o.jobs {
		o.t.Errorf("%d jobs were done, want %d", len(o.results), o.jobs)
	}
	o.t.Logf("%d deliveries of %d jobs in %v; %d workers killed, %d frozen, %d completions refused",
		o.jobs*o.each, o.jobs, time.Since(begun).Round(time.Millisecond), o.killed, o.frozen, o.lost)
	return o.results
}

// serve makes deliveries to one worker, and to the next one if that is killed.
func (o *office) serve(c *clerk) {
	for c != nil {
		select {
		case <-o.done:
			return
		case job := <-o.queue:
			if !o.deliver(c, job) {
				o.queue <- job // there is room: it came from there
				c = o.replace(c)
			}
		}
	}
}

// deliver makes one delivery, as often as the worker loses it. It reports whether the
// worker has lived to answer.
func (o *office) deliver(c *clerk, job string) bool {
	o.mu.Lock()
	o.busy = append(o.busy, c)
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.busy = slices.DeleteFunc(o.busy, func(b *clerk) bool { return b == c })
	}()
	for {
		c.Say(job)
		said := c.Hear()
		what, result, _ := strings.Cut(said, " ")
		o.mu.Lock()
		switch what {
		case "done":
			if old, ok := o.results[job]; ok && old != result {
				o.t.Errorf("%s was done twice: %s and %s", job, old, result)
			}
			o.results[job] = result
			if o.left--; o.left == 0 {
				close(o.done)
			}
		case "lost":
			o.lost++
		case "failed":
			o.t.Logf("%s: %s", job, said)
		}
		o.mu.Unlock()
		if what == "done" || what == "" {
			return what == "done"
		}
	}
}

// replace hires a worker in the place of one that was killed, and returns nil if it was
// not: it has seen two runs at once.
func (o *office) replace(c *clerk) *clerk {
	err := c.Wait()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != -1 {
		o.t.Errorf("a worker ended by itself: %v", err)
	}
	if o.t.Failed() {
		return nil
	}
	return o.hire()
}

// disturb kills or freezes a worker every 50 ms until all is done. On a busy machine
// workers may start slower than they are killed, so there is an end to that.
func (o *office) disturb() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * patience)
	for n := 1; ; n++ {
		select {
		case <-o.done:
			return
		case <-limit:
			o.t.Fatal("not every delivery is done")
		case <-tick.C:
			if o.t.Failed() {
				return
			}
			if o.killed < o.jobs*o.each/4 {
				o.attack(n%5 == 0)
			}
		}
	}
}

// attack kills a worker that has a delivery, or freezes it for longer than a lease.
func (o *office) attack(freeze bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	moving := slices.DeleteFunc(slices.Clone(o.busy), func(c *clerk) bool { return c.still })
	if len(moving) == 0 {
		return
	}
	c := moving[rand.N(len(moving))]
	if !freeze {
		o.killed++
		_ = c.Process().Kill()
		return
	}
	o.frozen++
	c.still = true
	_ = c.Process().Signal(syscall.SIGSTOP)
	time.AfterFunc(3*jobLease/2, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		c.still = false
		_ = c.Process().Signal(syscall.SIGCONT)
	})
}

// auditJob reads the books of a job: each run ends before the next begins, unless its
// worker was killed or has lost it; the last run is the one whose result all deliveries
// have got.
func (o *office) auditJob(job, result string) {
	o.t.Helper()
	all, err := logbook{o.orders.Dir, job}.entries()
	if err != nil || len(all) == 0 {
		o.t.Errorf("%s: %d entries, %v", job, len(all), err)
		return
	}
	var last entry
	for _, e := range all {
		if e.what == "enter" && e.token <= last.token || e.what == "leave" && (last.what != "enter" || e.token != last.token) {
			o.t.Errorf("%s: %v after %v", job, e, last)
		}
		last = e
	}
	if last.what != "leave" || strconv.FormatInt(last.token, 10) != result {
		o.t.Errorf("%s: the last run was %v, and the result is of %s", job, last, result)
	}
}
