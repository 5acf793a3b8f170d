//go:build unix

package supervise_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/memlock"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector would sleep for a second at each exit
	testscript.Main(m, map[string]func(){"wrap": wrap, "terms": terms, "late": supervise.LateStart, "early": early})
}

const (
	wrapTTL       = 10 * time.Minute // no lease expires during a test
	wrapKillAfter = 2 * time.Minute
	loseVariable  = "WRAP_LOSE"
)

// wrap is a program that runs its arguments as a command under a lock and prints how the command
// has ended. If WRAP_LOSE is "first", it breaks the lock before the command starts. If WRAP_LOSE
// names a FIFO, it breaks the lock when the command has written to the FIFO. It is a program
// because a supervisor reaps every child of its process, including those of other tests.
func wrap() {
	locks, lock := wrapLock()
	fifo := os.Getenv(loseVariable)
	if fifo == "first" {
		_, err := locks.Break(context.Background(), "x", "a test")
		check(err)
		fifo = ""
	}
	p, err := supervise.Start(wrapCommand(lock, os.Args[1:]...))
	check(err) // Start fails if the lock was broken before
	if fifo != "" {
		go func() { // ends when the command has written
			_, err := os.ReadFile(fifo)
			check(err)
			_, err = locks.Break(context.Background(), "x", "a test")
			check(err)
		}()
	}
	end := p.Wait()
	_ = lock.Release() // it may be lost
	p.Close()
	fmt.Printf("status %#x lost %v late %v asked %v\n", uint32(end.Status), end.Lost, end.Late, end.Asked)
}

// terms is a program that runs its arguments as a command ten times, each time under a new lock. It
// also has a child that does not belong to the commands.
func terms() {
	stranger, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{})
	check(err)
	defer stranger.Kill()
	for n := range 10 {
		_, lock := wrapLock()
		p, err := supervise.Start(wrapCommand(lock, os.Args[1:]...))
		check(err)
		end := p.Wait()
		check(lock.Release())
		p.Close()
		fmt.Printf("%d: %#x\n", n, uint32(end.Status))
	}
}

// wrapLock acquires the lock x, which a test can lose only by breaking it.
func wrapLock() (*fencelock.Locker, *fencelock.Lock) {
	locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{TTL: wrapTTL, Grace: wrapKillAfter + supervise.KillReserve})
	lock, err := locks.Acquire(context.Background(), "x")
	check(err)
	return locks, lock
}

// wrapCommand returns the command args under a lock.
func wrapCommand(lock *fencelock.Lock, args ...string) supervise.Command {
	path, err := supervise.Lookup(args[0])
	check(err)
	return supervise.Command{
		Path: path, Args: args, Env: os.Environ(),
		Lock: lock, Signals: supervise.Forwarded(), Signal: unix.SIGTERM, KillAfter: wrapKillAfter, Tick: time.Second / 2,
		Say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wrapped runs a shell command under a lock, and returns what wrap printed on stdout and stderr. It
// calls during, if given, while the command runs.
func wrapped(t *testing.T, line string, during func(wrapper *os.Process), env ...string) (end, said string) {
	t.Helper()
	cmd := exec.Command("wrap", "sh", "-c", line)
	cmd.Env = append(os.Environ(), env...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	must(t, cmd.Start())
	if during != nil {
		during(cmd.Process)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, talk.String())
	}
	return strings.TrimSpace(out.String()), talk.String()
}

func TestHowACommandEnds(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"exit 0":         "status 0x0 lost false late false asked false",
		"exit 3":         "status 0x300 lost false late false asked false",
		"kill -KILL $$":  "status 0x9 lost false late false asked false",
		"sleep 0.1 & :":  "status 0x0 lost false late false asked false", // the background process is waited for
		"kill -TERM $$ ": "status 0xf lost false late false asked false",
	} {
		if got, said := wrapped(t, line, nil); got != want {
			t.Errorf("%s: %s, want %s; it said %q", line, got, want, said)
		}
	}
}

// TestLossEndsTheCommand: if the lock is lost, the command receives SIGTERM and can exit by itself.
func TestLossEndsTheCommand(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: the lock is lost while the command runs", verdict.Safe)
	fifo := newFIFO(t)
	end, said := wrapped(t, `trap "exit 9" TERM; echo up >"$WRAP_LOSE"; while :; do sleep 0.05; done`, nil, loseVariable+"="+fifo)
	if want := "status 0x900 lost true late false asked false"; end != want {
		t.Errorf("%s, want %s", end, want)
	}
	if !strings.Contains(said, "sending SIGTERM to the command") {
		t.Errorf("it said %q", said)
	}
}

// TestLossBeforeTheStart: a command does not start if its lock is already lost.
func TestLossBeforeTheStart(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "fencelock run: the lock is lost before the command starts", verdict.Safe)
	ran := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command("wrap", "touch", ran)
	cmd.Env = append(os.Environ(), loseVariable+"=first")
	if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), "was lost") {
		t.Errorf("%v; it said %q", err, said)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command was started")
	}
}

// TestCommandsBesideAStranger: a process that also has another child runs several commands in a
// row, and gets the exit status of each.
func TestCommandsBesideAStranger(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "terms", "sh", "-c", "exit 3").Output()
	if err != nil || strings.Count(string(out), ": 0x300") != 10 {
		t.Errorf("%v; of ten commands these have ended:\n%s", err, out)
	}
}

// TestSignalsArePassedOn: a signal to the wrapper reaches the command, and the end is reported as
// asked for, not as a lost lock.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	fifo := newFIFO(t)
	end, _ := wrapped(t, `trap "exit 9" TERM; echo up >"$UP"; while :; do sleep 0.05; done`, func(wrapper *os.Process) {
		_, err := os.ReadFile(fifo)
		must(t, err)
		must(t, wrapper.Signal(unix.SIGTERM))
	}, "UP="+fifo)
	if want := "status 0x900 lost false late false asked true"; end != want {
		t.Errorf("%s, want %s", end, want)
	}
}

func newFIFO(t *testing.T) string {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	return fifo
}

// TestInheritableNumbers: inherited files get descriptors from 100, which the caller of fencelock
// does not use.
func TestInheritableNumbers(t *testing.T) {
	f, err := os.Open(os.DevNull)
	must(t, err)
	defer f.Close()
	dups, err := supervise.Inheritable([]*os.File{f, f})
	must(t, err)
	if len(dups) != 2 {
		t.Errorf("got %d descriptors", len(dups))
	}
	for _, d := range dups {
		if d.Fd() < 100 {
			t.Errorf("number %d is below 100", d.Fd())
		}
		d.Close()
	}
}

// TestNumberOfAGroupThatComesAgain: a group whose first process is not a known child is not
// signalled, since the kernel may have reused its number.
func TestNumberOfAGroupThatComesAgain(t *testing.T) {
	if supervise.Signalled(unix.Getpgrp()) {
		t.Error("a group of strangers is taken for that of the command")
	}
}

// TestWordsOfBytes: the command receives strings that are not UTF-8 unchanged.
func TestWordsOfBytes(t *testing.T) {
	t.Parallel()
	end, said := wrapped(t, `test "$WORD" = "$(printf 'a\377b')"`, nil, "WORD=a\xffb")
	if !strings.HasPrefix(end, "status 0x0 ") {
		t.Errorf("%s; it said %q", end, said)
	}
}

func TestLookup(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, nil, 0o600))
	for name, want := range map[string]int{
		"no-such-command": supervise.NotFound, "/no/such": supervise.NotFound, plain: supervise.NotExecutable, "/": supervise.NotExecutable,
	} {
		_, err := supervise.Lookup(name)
		if e, ok := errors.AsType[*supervise.StartError](err); !ok || e.Code != want {
			t.Errorf("%s: %v, want reason %d", name, err, want)
		}
	}
	t.Setenv("PATH", filepath.Dir(plain))
	if _, err := supervise.Lookup("plain"); err == nil || !strings.HasSuffix(err.Error(), "plain cannot be executed: permission denied") {
		t.Errorf("in PATH: %v", err)
	}
	os.Unsetenv("PATH")
	if path, err := supervise.Lookup("sh"); err != nil || !strings.HasSuffix(path, "bin/sh") {
		t.Errorf("without PATH: %s, %v", path, err)
	}
}

// TestOwnFailuresToStart: an exhausted resource of fencelock is reported as Failed, not as an error
// of the command.
func TestOwnFailuresToStart(t *testing.T) {
	for inner, want := range map[error]int{
		unix.EAGAIN: supervise.Failed, unix.ENOMEM: supervise.Failed, unix.EMFILE: supervise.Failed,
		unix.ENOEXEC: supervise.NotExecutable, unix.ENOENT: supervise.NotFound,
	} {
		err := supervise.StartErrorOf("job", &os.PathError{Op: "fork/exec", Path: "job", Err: inner})
		if e, ok := errors.AsType[*supervise.StartError](err); !ok || e.Code != want {
			t.Errorf("%v: %v, want reason %d", inner, err, want)
		}
	}
}

// early is a program that gets SIGQUIT while it starts, or later if it has an argument.
func early() {
	supervise.ExitOnSignals()
	if len(os.Args) > 1 {
		signals := make(chan os.Signal, 1)
		supervise.Notify(signals, unix.SIGQUIT)
		defer func() { fmt.Println("got", <-signals) }()
	}
	check(unix.Kill(os.Getpid(), unix.SIGQUIT))
	if len(os.Args) == 1 {
		select {} // the signal ends this process
	}
}

// TestExitOnSignals: a signal that arrives before the first Notify ends the process without a dump
// of its goroutines. Later ones are delivered.
func TestExitOnSignals(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("early").CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != 128+int(unix.SIGQUIT) || len(out) > 0 {
		t.Errorf("early: %v: %s", err, out)
	}
	if out, err := exec.Command("early", "late").CombinedOutput(); err != nil || string(out) != "got quit\n" {
		t.Errorf("late: %v: %s", err, out)
	}
}
