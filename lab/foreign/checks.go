package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock"
)

// patience is how long an answer may take that nothing holds up.
const patience = 10 * time.Second

// trial is one check in progress: the client, and we who play the other holder of its name.
type trial struct {
	ctx   context.Context
	locks *fencelock.Locker
	name  string
	ttl   time.Duration
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // what the client says; closed at its end
	held  []*fencelock.Lock
}

// check is one thing that a client must do.
type check struct {
	name, what string
	try        func(*trial)
}

var checks = []check{
	{"acquire", "a free lock is granted and excludes others; released, it is free, and tokens increase", tryAcquire},
	{"held", "a held lock is refused without a wait, and after one, which leaves no waiter", tryHeld},
	{"wait", "a waiter is not granted a held lock, and gets it after the release, with a greater token", tryWait},
	{"queue", "a waiter has its place in the queue", tryQueue},
	{"turn", "its release wakes the next waiter", tryTurn},
	{"renew", "it renews: its lock outlives three TTLs", tryRenew},
	{"break", "it reports that its lock was broken, within a TTL", tryBreak},
	{"freeze", "it reports the loss after it was frozen, and does not take the lock back", tryFreeze},
	{"kill", "its lock is free after its end, within two TTLs", tryKill},
}

// attempt starts the client, does a check and ends the client. The check panics with a failure.
func attempt(ctx context.Context, locks *fencelock.Locker, command []string, ttl time.Duration, c check) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*patience+10*ttl)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	name := fmt.Sprintf("foreign-%s-%d", c.name, time.Now().UnixNano())
	t := &trial{ctx: ctx, locks: locks, name: name, ttl: ttl, cmd: cmd, in: in, lines: make(chan string, 1000)}
	go func() { // ends with the client, whose output then ends
		defer close(t.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.lines <- lines.Text()
		}
	}()
	defer func() {
		_ = cmd.Process.Kill()
		for range t.lines { // Wait must not be called before all is read
		}
		_ = cmd.Wait()
		for _, lock := range t.held {
			_ = lock.Release() // it may be released already
		}
		if f, ok := recover().(failure); ok {
			err = f.error
		}
	}()
	c.try(t)
	return nil
}

// failure is why a check failed.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func fail(format string, args ...any) { must(fmt.Errorf(format, args...)) }

// order sends a line to the client.
func (t *trial) order(words ...any) {
	_, err := fmt.Fprintln(t.in, words...)
	must(err)
}

// acquire orders the client to acquire the lock.
func (t *trial) acquire(wait time.Duration) {
	t.order("acquire", t.name, t.ttl.Milliseconds(), wait.Milliseconds())
}

// answer waits for the next line of the client, and returns what follows its first word.
func (t *trial) answer(word string, patience time.Duration) string {
	select {
	case line, ok := <-t.lines:
		first, rest, _ := strings.Cut(line, " ")
		switch {
		case !ok:
			fail("the client has ended, want %q", word)
		case first != word:
			fail("the client says %q, want %q", line, word)
		}
		return rest
	case <-time.After(patience):
		fail("the client does not say %q within %v", word, patience)
	}
	return ""
}

// release orders the client to release.
func (t *trial) release(want string) {
	t.order("release")
	t.answer(want, patience)
}

// granted waits until the client is granted the lock, and returns its token.
func (t *trial) granted(than int64) int64 {
	token, err := strconv.ParseInt(t.answer("granted", patience), 10, 64)
	must(err)
	if token <= than {
		fail("its token %d is not greater than the last one, %d", token, than)
	}
	return token
}

// theirs has the client acquire the free lock.
func (t *trial) theirs() (token int64) {
	t.acquire(0)
	return t.granted(0)
}

// ours acquires the lock, within so long, with a token greater than theirs.
func (t *trial) ours(than int64, within time.Duration) *fencelock.Lock {
	lock, err := t.locks.With(fencelock.Options{Wait: within}).Acquire(t.ctx, t.name)
	must(err)
	t.held = append(t.held, lock)
	must(greater(lock, than))
	return lock
}

// greater returns an error if the token of our lock is not greater than theirs.
func greater(lock *fencelock.Lock, than int64) error {
	if lock.Token() <= than {
		return fmt.Errorf("our token %d is not greater than the client's, %d", lock.Token(), than)
	}
	return nil
}

// refused checks that we cannot have the lock now.
func (t *trial) refused() {
	if _, err := t.locks.TryAcquire(t.ctx, t.name); err == nil {
		fail("the lock is free for us while the client holds it")
	} else if !errors.Is(err, fencelock.ErrHeld) {
		must(err)
	}
}

// waiters returns how many requests wait for the lock.
func (t *trial) waiters() int {
	s, err := t.locks.Status(t.ctx, t.name)
	must(err)
	return len(s.Waiters)
}

// queued waits until a request waits for the lock.
func (t *trial) queued() {
	for end := time.Now().Add(patience); t.waiters() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			fail("there is nobody in the queue")
		}
	}
}

func tryAcquire(t *trial) {
	token := t.theirs()
	t.refused()
	t.release("released")
	lock, err := t.locks.TryAcquire(t.ctx, t.name)
	if err != nil {
		fail("after its release: %w", err)
	}
	must(greater(lock, token))
	must(lock.Release())
	t.acquire(0)
	t.granted(lock.Token())
}

func tryHeld(t *trial) {
	t.ours(0, patience)
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		t.acquire(wait)
		t.answer("held", patience)
	}
	if t.waiters() > 0 {
		fail("the request that it gave up is still in the queue")
	}
}

func tryWait(t *trial) { t.wait(func() { time.Sleep(t.ttl / 2) }) }

func tryQueue(t *trial) { t.wait(t.queued) }

// wait has the client wait for our lock, and lets it go after then.
func (t *trial) wait(then func()) {
	lock := t.ours(0, patience)
	t.acquire(4 * patience)
	then()
	select {
	case line := <-t.lines:
		fail("the client says %q while we hold the lock", line)
	default:
	}
	must(lock.Release())
	t.granted(lock.Token())
	t.refused()
	t.release("released")
}

func tryTurn(t *trial) {
	token := t.theirs()
	got := make(chan error, 1)
	go func() { // ends when we have the lock, at the latest after twice our patience
		lock, err := t.locks.With(fencelock.Options{Wait: 2 * patience}).Acquire(t.ctx, t.name)
		if err == nil {
			err = greater(lock, token)
		}
		got <- err
	}()
	t.queued()
	t.release("released")
	must(<-got)
}

func tryRenew(t *trial) {
	t.theirs()
	for end := time.Now().Add(3 * t.ttl); time.Now().Before(end); time.Sleep(t.ttl / 10) {
		t.refused()
	}
	t.release("released")
}

func tryBreak(t *trial) {
	token := t.theirs()
	_, err := t.locks.Break(t.ctx, t.name, "a test")
	must(err)
	t.answer("lost", t.ttl+time.Second)
	t.ours(token, patience)
	t.release("lost")
}

func tryFreeze(t *trial) {
	token := t.theirs()
	must(t.cmd.Process.Signal(syscall.SIGSTOP))
	lock := t.ours(token, 2*t.ttl+patience)
	must(t.cmd.Process.Signal(syscall.SIGCONT))
	t.answer("lost", patience)
	t.release("lost")
	must(lock.Release()) // it is still ours
}

func tryKill(t *trial) {
	token := t.theirs()
	must(t.cmd.Process.Kill())
	begun := time.Now()
	t.ours(token, 2*t.ttl+patience)
	if took := time.Since(begun); took > 2*t.ttl+time.Second {
		fail("it became free after %v", took)
	}
}
