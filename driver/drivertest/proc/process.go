package proc

import (
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// ErrGone is wrapped by calls of a process that has ended.
var ErrGone = errors.New("the engine's process is gone")

// A Process is an engine in a child process of the test. It implements driver.Engine and the
// optional interfaces Lister, Breaker, OwnerBreaker, Adopter, Resizer, RateLimiter and RecordKeeper by
// forwarding calls to the child, and is a drivertest.Client and a drivertest.Remote. It is safe for
// concurrent use.
//
// Calls block while the process is frozen. After it was killed they return driver.ErrUnavailable
// and [ErrGone]. Callbacks of a request run in the test. If OnWait panics, the callback panics in
// the child too, and then the call of Acquire panics.
type Process struct {
	*worker
	traits driver.Traits
	has    []string    // optional interfaces of the engine
	over   atomic.Bool // the test has ended
}

// A worker is a child process, which serves one engine after the other.
type worker struct {
	cmd    *exec.Cmd
	gone   chan struct{} // closed when the child has ended
	frozen atomic.Bool   // it has been frozen at least once

	mu    sync.Mutex // guards in, next, calls
	in    *gob.Encoder
	next  int64
	calls map[int64]*call
}

// A call is one call in progress. A granted one is kept, in case of a loss.
type call struct {
	answer  chan answer
	waiting func(driver.WaitInfo)
	lost    func(error) // nil if there is no OnLost

	panicked any // value with which waiting panicked; valid when the answer says so
}

// idle are workers of tests that have ended. Starting a large test binary, in particular with the
// race detector, takes as long as a short test. They end with this process.
var idle struct {
	sync.Mutex // guards workers
	workers    []*worker
}

// Start runs an engine in a child process, which is another instance of this test binary. Its
// TestMain must call [Main] with a map that contains kind. At the end of the test the engine is
// closed, or the process is killed if the engine cannot be closed.
func Start(t testing.TB, kind, arg string) *Process {
	t.Helper()
	w := reuse()
	if w == nil {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		w = start(t, exec.Command(exe))
	}
	p := w.open(t, kind, arg)
	t.Cleanup(func() {
		if t.Failed() || !p.close() {
			p.Kill(t)
		}
	})
	return p
}

// StartCommand is Start with a command that runs this test binary, for example as another user or
// with other limits. The process is killed at the end of the test.
func StartCommand(t testing.TB, cmd *exec.Cmd, kind, arg string) *Process {
	t.Helper()
	p := start(t, cmd).open(t, kind, arg)
	t.Cleanup(func() { p.Kill(t) })
	return p
}

// reuse returns an idle worker, or nil.
func reuse() *worker {
	idle.Lock()
	defer idle.Unlock()
	for n := len(idle.workers); n > 0; n-- {
		w := idle.workers[n-1]
		idle.workers = idle.workers[:n-1]
		select {
		case <-w.gone:
		default:
			return w
		}
	}
	return nil
}

func start(t testing.TB, cmd *exec.Cmd) *worker {
	t.Helper()
	cmd.Env = append(cmd.Environ(), envChild+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: cmd, gone: make(chan struct{}), in: gob.NewEncoder(in), calls: map[int64]*call{}}
	go w.listen(out)
	return w
}

// open creates an engine in the child.
func (w *worker) open(t testing.TB, kind, arg string) *Process {
	t.Helper()
	p := &Process{worker: w}
	a, err := p.ask(context.Background(), question{Op: opOpen, Name: kind, Arg: arg}, &call{})
	if err := cmp.Or(err, a.err()); err != nil {
		p.Kill(t)
		t.Fatal(err)
	}
	p.traits, p.has = a.Traits, a.Has
	return p
}

// closeLimit bounds closing an engine.
const closeLimit = 5 * time.Second

// close closes the engine and keeps the child for other tests. It returns false if the child must
// end.
func (p *Process) close() bool {
	if p.frozen.Load() {
		return false // it may still be frozen
	}
	c := &call{answer: make(chan answer, 1)}
	id := p.enlist(c)
	p.over.Store(true)
	if p.send(question{ID: id, Op: opClose}) != nil {
		return false
	}
	select {
	case a := <-c.answer:
		if a.err() != nil {
			return false
		}
	case <-p.gone:
		return true
	case <-time.After(closeLimit):
		return false
	}
	p.mu.Lock()
	clear(p.calls)
	p.mu.Unlock()
	idle.Lock()
	defer idle.Unlock()
	idle.workers = append(idle.workers, p.worker)
	return true
}

// Has reports whether the engine in the child implements the optional interface of package driver
// with that name, such as "Lister", or io.Closer. Methods of the others return driver.ErrUnsupported.
func (p *Process) Has(name string) bool { return slices.Contains(p.has, name) }

// PID returns the process id of the child.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// listen handles the messages of the child until it ends.
func (w *worker) listen(out io.Reader) {
	defer close(w.gone)
	d := gob.NewDecoder(out)
	for {
		var a answer
		if d.Decode(&a) != nil {
			_ = w.cmd.Wait() // usually because it was killed
			return
		}
		w.mu.Lock()
		c := w.calls[a.ID]
		w.mu.Unlock()
		if c != nil {
			w.hear(c, a)
		}
	}
}

func (w *worker) hear(c *call, a answer) {
	switch a.Kind {
	case kindWaiting:
		a.Info.Trouble = a.Why.err()
		_ = w.send(question{ID: a.ID, Op: opHeard, Panic: !c.wait(a.Info)}) // fails if the child is gone
	case kindLost:
		c.lost(a.err())
	default:
		c.answer <- a
	}
}

// wait calls the caller's OnWait. If that panics, it keeps the value for the caller's goroutine.
func (c *call) wait(info driver.WaitInfo) (ok bool) {
	defer func() {
		if !ok {
			c.panicked = recover()
		}
	}()
	c.waiting(info)
	return true
}

// ask sends a question and waits for its answer. When ctx ends it tells the child, and still waits,
// because the child may have been granted a lock.
func (p *Process) ask(ctx context.Context, q question, c *call) (answer, error) {
	if p.over.Load() {
		return answer{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ErrGone)
	}
	c.answer = make(chan answer, 1)
	q.ID, q.Ended = p.enlist(c), ctx.Err() != nil
	if c.lost == nil {
		defer p.forget(q.ID)
	}
	if err := p.send(q); err != nil {
		return answer{}, err
	}
	done := ctx.Done()
	for {
		select {
		case a := <-c.answer:
			if a.Panicked {
				panic(c.panicked)
			}
			return a, nil
		case <-done:
			done = nil
			if err := p.send(question{ID: q.ID, Op: opCancel}); err != nil {
				return answer{}, err
			}
		case <-p.gone:
			return answer{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ErrGone)
		}
	}
}

// do is ask with the error of the answer, as the caller of the engine expects it.
func (p *Process) do(ctx context.Context, q question, c *call) (answer, error) {
	a, err := p.ask(ctx, q, c)
	if err != nil {
		return answer{}, err
	}
	return a, hand(ctx, a.err())
}

// enlist assigns a number to a call.
func (w *worker) enlist(c *call) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.calls[w.next] = c
	return w.next
}

func (w *worker) send(q question) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.in.Encode(q); err != nil {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ErrGone, err)
	}
	return nil
}

func (w *worker) forget(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, id)
}

// Traits returns the traits of the engine in the child.
func (p *Process) Traits() driver.Traits { return p.traits }

// Acquire calls Acquire in the child. The callbacks of req run in the test.
func (p *Process) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c := &call{waiting: req.OnWait, lost: req.OnLost}
	a, err := p.do(ctx, question{Op: opAcquire, Request: pack(req)}, c)
	return a.Grant, err
}

// Renew calls Renew in the child.
func (p *Process) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	a, err := p.ask(ctx, question{Op: opRenew, Leases: leases}, &call{})
	for i := range errs {
		switch {
		case err != nil:
			errs[i] = err
		case i < len(a.Errs):
			errs[i] = hand(ctx, a.Errs[i].err())
		}
	}
	return errs
}

// Release calls Release in the child.
func (p *Process) Release(ctx context.Context, l driver.Lease) error {
	_, err := p.do(ctx, question{Op: opRelease, Leases: []driver.Lease{l}}, &call{})
	return err
}

// List calls List in the child. It returns driver.ErrUnsupported if the engine is no driver.Lister.
func (p *Process) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	a, err := p.do(ctx, question{Op: opList, Query: q}, &call{})
	return a.List, err
}

// Break calls Break in the child. It returns driver.ErrUnsupported if the engine is no
// driver.Breaker.
func (p *Process) Break(ctx context.Context, name, reason string) (int64, error) {
	a, err := p.do(ctx, question{Op: opBreak, Name: name, Reason: reason}, &call{})
	return a.Token, err
}

// BreakOwner calls BreakOwner in the child. It returns driver.ErrUnsupported if the engine is no
// driver.OwnerBreaker.
func (p *Process) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	a, err := p.do(ctx, question{Op: opOne, Name: name, Owner: owner, Reason: reason}, &call{})
	return a.Token, err
}

// Adopt calls Adopt in the child. The callback OnLost of req runs in the test. Adopt returns
// driver.ErrUnsupported if the engine is no driver.Adopter.
func (p *Process) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	a, err := p.do(ctx, question{Op: opAdopt, Leases: []driver.Lease{lease}, Request: pack(req)}, &call{lost: req.OnLost})
	return a.Grant, err
}

// Detach calls Detach in the child.
func (p *Process) Detach(lease driver.Lease) {
	_, _ = p.ask(context.Background(), question{Op: opDetach, Leases: []driver.Lease{lease}}, &call{}) // fails if the child is dead
}

// Resize calls Resize in the child. It returns driver.ErrUnsupported if the engine is no
// driver.Resizer.
func (p *Process) Resize(ctx context.Context, name string, limit int) error {
	_, err := p.do(ctx, question{Op: opResize, Name: name, Limit: limit}, &call{})
	return err
}

// Close calls Close in the child, without ending the calls in progress. It returns driver.ErrUnsupported if the
// engine is no io.Closer.
func (p *Process) Close() error {
	_, err := p.do(context.Background(), question{Op: opShut}, &call{})
	return err
}

// TakeRate calls TakeRate in the child. It returns driver.ErrUnsupported if the engine is no
// driver.RateLimiter.
func (p *Process) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	a, err := p.do(ctx, question{Op: opTake, Take: take}, &call{})
	return a.Taken, err
}

// ReturnRate calls ReturnRate in the child. It returns driver.ErrUnsupported if the engine is no
// driver.RateLimiter.
func (p *Process) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	_, err := p.do(ctx, question{Op: opReturn, Take: take, Taken: taken}, &call{})
	return err
}

// ResetRate calls ResetRate in the child. It returns driver.ErrUnsupported if the engine is no
// driver.RateLimiter.
func (p *Process) ResetRate(ctx context.Context, key string) error {
	_, err := p.do(ctx, question{Op: opReset, Name: key}, &call{})
	return err
}

// Kill kills the process, as kill -9 does, and returns when it has ended.
func (p *Process) Kill(testing.TB) {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}
