//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// scriptPatience is how long a script waits for something that must happen.
const scriptPatience = 3 * time.Minute

// noExitPause is a value of GORACE. Without it, the race detector would sleep for a second at the
// exit of each command.
const noExitPause = "atexit_sleep_ms=0"

// programs are the programs that the test binary runs as when it is started under another name.
var programs = map[string]func(){"fencelock": func() { Main(nil) }, "holdlock": holdLock, "answertoken": answerToken}

func TestMain(m *testing.M) {
	os.Setenv("GORACE", noExitPause) // for the commands that tests start
	testscript.Main(shipped{m}, programs)
}

// shipped runs the tests with the command as users build it, without the race detector. The scripts
// start hundreds of commands, which takes three times as long with the race detector; only make
// slow uses it.
type shipped struct{ *testing.M }

func (s shipped) Run() int {
	// Under nohup, or in the background of a shell, the commands would inherit ignored signals and
	// would ignore them too.
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		return s.M.Run()
	}
	path, err := exec.LookPath("fencelock")
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", path, "../../fencelock")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the command:", err)
		return 1
	}
	return s.M.Run()
}

// run calls perform and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return exitCode(perform(args, stdin, stdout, stderr))
}

// scriptLimit is the time limit of all scripts together. They take three minutes, and more on a machine
// that compiles meanwhile. The limit of go test must be longer.
const scriptLimit = 20 * time.Minute

func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:      filepath.Join("testdata", "script"),
		Deadline: time.Now().Add(scriptLimit), // then a script that hangs reports its line
		Setup: func(env *testscript.Env) error {
			env.Setenv("FENCELOCK_URL", "file://"+filepath.Join(env.WorkDir, "locks"))
			docs, err := filepath.Abs(filepath.Join("..", "..", "..", "docs"))
			if err != nil {
				return err
			}
			env.Setenv("DOCS", docs)
			env.Setenv("GORACE", noExitPause)
			env.Values[serversKey{}] = newScriptServers()
			env.Defer(func() { goOn(env.WorkDir) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode":   scriptExitCode,
			"signal":     scriptSignal,
			"waitfile":   scriptWaitFile,
			"waitheld":   scriptWaitHeld,
			"waitqueued": scriptWaitQueued,
			"jsonhas":    scriptJSONHas,
			"waitmatch":  scriptWaitMatch,
			"waitprobe":  scriptWaitProbe,
			"greater":    scriptGreater,
			"longname":   scriptLongName,
			"redis":      scriptRedis(t),
			"pg":         scriptPostgres(t),
			"kube":       scriptKube(t),
			"mariadb":    scriptMariaDB(t),
			"s3":         scriptS3(t),
			"ended":      scriptEnded,
		},
	})
}

// goOn continues the processes that a script has stopped. The end of a script waits for its
// commands, so without goOn a failed script would be reported only at the time limit.
func goOn(dir string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
		if to, _ := os.Readlink(link); err != nil || !strings.HasPrefix(to, dir) || !strings.Contains(string(stat), ") T ") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// holdLock is a program for scripts, "holdlock NAME [READYFILE [shared|NAME2]]". It holds NAME, and
// NAME2 if given, until it receives INT or TERM or loses NAME. It prints which of these happened.
func holdLock() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	lost := make(chan error, 1)
	req := driver.Request{
		Name: os.Args[1], TTL: 30 * time.Second, Wait: true,
		Identity: driver.Identity{Host: "host\x1b]0;x\a", PID: os.Getpid(), Note: "a note\x1b[31m"},
		OnLost:   func(err error) { lost <- err },
	}
	engine, _, err := engineurl.Open(ctx, os.Getenv("FENCELOCK_URL"), nil)
	check(err)
	if len(os.Args) > 3 && os.Args[3] == "shared" {
		req.Mode = driver.Shared
	} else if len(os.Args) > 3 {
		beside := req
		beside.Name, beside.OnLost = os.Args[3], nil
		_, err = engine.Acquire(ctx, beside)
		check(err)
	}
	grant, err := engine.Acquire(ctx, req)
	check(err)
	if len(os.Args) > 2 {
		check(os.WriteFile(os.Args[2], []byte(strconv.FormatInt(grant.Token, 10)), 0o600))
	}
	select {
	case <-ctx.Done():
		fmt.Println("released")
		check(engine.Release(context.Background(), driver.Lease{
			Name: req.Name, Owner: grant.Owner, Token: grant.Token, Mode: req.Mode, TTL: req.TTL,
		}))
	case err := <-lost:
		fmt.Println("lost:", err)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdlock:", err)
		os.Exit(1)
	}
}

// scriptExitCode implements "exitcode N CMD ARGS...". It runs CMD, which must exit with code N.
func scriptExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N command [args...]")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%q exited with %d, want %s", args[1:], code, args[0])
	}
}

// scriptSignal implements "signal NAME PIDFILE", such as "signal TERM child.pid".
func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME pidfile")
	}
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(args[0], "SIG"))
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	if sig == 0 || pid <= 1 {
		ts.Fatalf("signal %s to pid %d", args[0], pid)
	}
	ts.Check(syscall.Kill(pid, sig))
}

// scriptWaitFile implements "waitfile FILE...". It waits until each file exists and is not empty,
// or with "!" until no file exists.
func scriptWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		poll(ts, "file "+file, func() bool {
			info, err := os.Stat(ts.MkAbs(file))
			if neg {
				return errors.Is(err, os.ErrNotExist)
			}
			return err == nil && info.Size() > 0
		})
	}
}

// scriptWaitHeld implements "waitheld NAME". It waits until the name is held, or with "!" until it
// is not.
func scriptWaitHeld(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: waitheld NAME")
	}
	poll(ts, "holder of "+args[0], func() bool {
		s, ok := statusOf(ts, args[0])
		return ok && (len(s.Holders) > 0) != neg
	})
}

// scriptWaitQueued implements "waitqueued NAME N". It waits until at least N waiters are queued.
func scriptWaitQueued(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitqueued NAME N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	poll(ts, "queue of "+args[0], func() bool {
		s, ok := statusOf(ts, args[0])
		return ok && len(s.Waiters) >= n
	})
}

// statusOf returns the status of a name. ok is false if the engine does not answer in time, as on a
// busy machine.
func statusOf(ts *testscript.TestScript, name string) (s driver.Status, ok bool) {
	a := &App{Context: context.Background(), URL: ts.Getenv("FENCELOCK_URL")}
	err := a.within(a.Context, func(engine driver.Engine) (err error) {
		s, err = fencelock.New(engine, nil).Status(a.Context, name)
		return err
	})
	if errors.Is(err, driver.ErrUnavailable) {
		ts.Logf("%v", err)
		return s, false
	}
	ts.Check(err)
	return s, true
}

// scriptWaitMatch implements "waitmatch FILE REGEXP". It waits until the file matches.
func scriptWaitMatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitmatch FILE regexp")
	}
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	poll(ts, args[1]+" in "+args[0], func() bool {
		return pattern.MatchString(ts.ReadFile(args[0]))
	})
}

// scriptGreater implements "greater FILE1 FILE2". The number in FILE1 must be greater.
func scriptGreater(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: greater FILE1 FILE2")
	}
	var n [2]int64
	for i, file := range args {
		var err error
		n[i], err = strconv.ParseInt(strings.TrimSpace(ts.ReadFile(file)), 10, 64)
		ts.Check(err)
	}
	if n[0] <= n[1] {
		ts.Fatalf("%d is not greater than %d", n[0], n[1])
	}
}

// scriptLongName implements "longname VARIABLE N". It sets VARIABLE to a name of N bytes.
func scriptLongName(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: longname VARIABLE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Setenv(args[0], strings.Repeat("x", n))
}

func poll(ts *testscript.TestScript, what string, done func() bool) {
	for end := time.Now().Add(scriptPatience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("gave up waiting for %s", what)
		}
	}
}

// scriptJSONHas implements "jsonhas FILE PATH [VALUE]". Each line of FILE must be JSON and have
// PATH, such as holders.0.pid. With VALUE, which is JSON, it suffices that one line has this value
// at PATH.
func scriptJSONHas(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: jsonhas FILE PATH [VALUE]")
	}
	var seen []string
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var v any
		ts.Check(json.Unmarshal([]byte(line), &v))
		found, ok := lookUp(v, strings.Split(args[1], "."))
		if !ok && len(args) == 2 {
			ts.Fatalf("no %s in %s", args[1], line)
		}
		data, err := json.Marshal(found)
		ts.Check(err)
		seen = append(seen, string(data))
	}
	if len(seen) == 0 || len(args) == 3 && !slices.Contains(seen, args[2]) {
		ts.Fatalf("%s is %q", args[1], seen)
	}
}

func lookUp(v any, path []string) (any, bool) {
	for _, step := range path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// scriptWaitProbe implements "waitprobe FILE PATH STATUS REGEXP". It waits until the process of
// elect --health -v, or of ui, whose output is in FILE answers PATH with a status and a body that matches.
func scriptWaitProbe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: waitprobe FILE PATH STATUS REGEXP")
	}
	address, want := regexp.MustCompile(`(?:answering probes on |http://)([^/\s]+)`), regexp.MustCompile("^"+args[2]+" (?s).*"+args[3])
	poll(ts, args[1]+" answers "+args[2]+" "+args[3], func() bool {
		found := address.FindStringSubmatch(ts.ReadFile(args[0]))
		return found != nil && want.MatchString(probe("http://"+found[1]+args[1]))
	})
}

// probe returns the status and the body of a page.
func probe(url string) string {
	r, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return fmt.Sprintf("%d %s %v", r.StatusCode, body, err)
}
