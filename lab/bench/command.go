package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// commandSuite is the command on files, beside flock of util-linux.
var commandSuite = suite{
	name:  "command",
	title: "The command, on files",
	notes: "`fencelock run` and `flock` run `true` under a lock on one host, one run after another. Then\n" +
		"processes wait for a lock that stays held. `flock` has no queue, no tokens, no watchdog and no\n" +
		"list of holders.\n",
	contestants: []contestant{{name: flockCommand}, {name: ours}},
	measures:    []measure{{"startup", startUp}, {"waiter", waiters}},
	start:       buildCommand,
}

// flockCommand is flock of util-linux.
const flockCommand = "flock"

// flockCall is how /proc names the system call in which flock waits.
var flockCall = strconv.Itoa(syscall.SYS_FLOCK) + " "

// commandFiles is a directory with the command and its locks.
type commandFiles struct{ dir string }

// buildCommand builds the command as a release is built.
func buildCommand() (server, error) {
	dir, err := os.MkdirTemp("", "bench-command-")
	if err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, ours), "./fencelock")
	build.Dir = "../cmd"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("the command cannot be built: %w: %s", err, out)
	}
	return commandFiles{dir}, nil
}

func (f commandFiles) addr() string { return f.dir }
func (f commandFiles) stop()        { _ = os.RemoveAll(f.dir) }

func (f commandFiles) version() string {
	out, err := exec.Command(flockCommand, "--version").Output()
	if err != nil {
		return flockCommand
	}
	return strings.TrimSpace(string(out))
}

// under returns a command that runs args under a contestant's lock of this name.
func under(dir, contestant, name string, args ...string) *exec.Cmd {
	if contestant == flockCommand {
		return exec.Command(flockCommand, append([]string{filepath.Join(dir, "lock."+name)}, args...)...)
	}
	cmd := exec.Command(filepath.Join(dir, ours), append([]string{"run", name, "--"}, args...)...)
	cmd.Env = append(os.Environ(), "FENCELOCK_URL=file://"+filepath.Join(dir, "locks"))
	return cmd
}

// startUp runs true under a lock that is free.
func startUp(a *arena, s settings) ([]row, error) {
	wall, cpu := map[string][]float64{}, map[string][]float64{}
	for range s.rounds {
		for _, c := range a.contestants {
			cmd := under(a.addr(), c.name, "free", "true")
			begun := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
			}
			wall[c.name] = append(wall[c.name], time.Since(begun).Seconds())
			cpu[c.name] = append(cpu[c.name], (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		}
	}
	return []row{
		besideFlock(row{what: "run true under a free lock", bars: []bar{noMore(0.015)}}, wall),
		besideFlock(row{what: "... CPU of it and its children"}, cpu),
	}, nil
}

// besideFlock fills a row of seconds with medians.
func besideFlock(r row, took map[string][]float64) row {
	r.unit, r.base = "s", flockCommand
	r.values, r.ratios = map[string]float64{}, map[string]float64{}
	for name, all := range took {
		slices.Sort(all)
		r.values[name] = all[len(all)/2]
	}
	for name, v := range r.values {
		r.ratios[name] = v / r.values[flockCommand]
	}
	return r
}

// waiters lets many processes wait for one lock, and counts what they cost while
// nothing happens.
func waiters(a *arena, s settings) ([]row, error) {
	n := or(s, 300, 20)
	joined := map[string][]float64{}
	cpu := row{what: fmt.Sprintf("%d waiting processes: CPU of each, ms a second", n), places: 2, values: map[string]float64{}, bars: []bar{noMore(1)}}
	rss := row{what: "... median RSS, MiB", places: 1, values: map[string]float64{}, bars: []bar{noMore(10)}}
	wakes := row{what: "... wake-ups of each, a second", places: 1, values: map[string]float64{}}
	inotify := row{what: "... inotify instances of all", values: map[string]float64{}, bars: []bar{noMore(0)}}
	for _, c := range a.contestants {
		w, err := wait(a.addr(), c.name, n)
		if err != nil {
			return nil, err
		}
		joined[c.name] = []float64{w.joined.Seconds()}
		time.Sleep(3 * time.Second) // what happens at the start is over
		before, begun := w.look(), time.Now()
		time.Sleep(or(s, 30*time.Second, 5*time.Second))
		after, length := w.look(), time.Since(begun).Seconds()
		w.end()
		cpu.values[c.name] = (after.cpu - before.cpu).Seconds() * 1000 / length / float64(n)
		wakes.values[c.name] = float64(after.wakes-before.wakes) / length / float64(n)
		rss.values[c.name], inotify.values[c.name] = after.rss, float64(after.inotify)
	}
	return []row{besideFlock(row{what: fmt.Sprintf("%d processes join the queue", n), bars: []bar{noMore(3)}}, joined), cpu, wakes, rss, inotify}, nil
}

// crowdOf is many processes that wait for one lock.
type crowdOf struct {
	all    []*exec.Cmd // the holder first
	joined time.Duration
}

// wait starts a holder, and n processes that wait for its lock.
func wait(dir, contestant string, n int) (w *crowdOf, err error) {
	w = &crowdOf{}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	for i := range n + 1 {
		cmd := under(dir, contestant, "busy", "sleep", "1000")
		if err := cmd.Start(); err != nil {
			return w, err
		}
		w.all = append(w.all, cmd)
		if i == 0 {
			time.Sleep(time.Second) // it holds the lock by now
		}
	}
	begun := time.Now()
	for w.waiting(dir, contestant) < n {
		if time.Since(begun) > 5*time.Minute {
			return w, fmt.Errorf("%d of %d processes of %s wait", w.waiting(dir, contestant), n, contestant)
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.joined = time.Since(begun)
	return w, nil
}

// waiting counts the processes that have joined: those of ours have a ticket, and
// those of flock block in the kernel.
func (w *crowdOf) waiting(dir, contestant string) (n int) {
	if contestant == ours {
		tickets, _ := filepath.Glob(filepath.Join(dir, "locks", "busy", "*.w.*"))
		return len(tickets)
	}
	for _, cmd := range w.all[1:] {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", cmd.Process.Pid)); strings.HasPrefix(string(b), flockCall) {
			n++
		}
	}
	return n
}

// end ends all.
func (w *crowdOf) end() {
	for _, cmd := range slices.Backward(w.all) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// expense is what processes took so far.
type expense struct {
	cpu     time.Duration
	wakes   int
	rss     float64 // of the middle one, in MiB
	inotify int
}

// look adds up what the waiting processes took.
func (w *crowdOf) look() (e expense) {
	var rss []float64
	for _, cmd := range w.all[1:] {
		proc := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
		for status := range strings.Lines(tasks(proc)) {
			name, value, _ := strings.Cut(status, ":")
			n, _ := strconv.Atoi(strings.Fields(value + " 0")[0])
			if name == "voluntary_ctxt_switches" {
				e.wakes += n
			}
		}
		own := fields(proc + "/status")
		rss = append(rss, float64(own["VmRSS"])/1024)
		e.cpu += used(proc)
		links, _ := filepath.Glob(proc + "/fd/*")
		for _, l := range links {
			if to, _ := os.Readlink(l); strings.Contains(to, "inotify") {
				e.inotify++
			}
		}
	}
	slices.Sort(rss)
	e.rss = rss[len(rss)/2]
	return e
}

// tasks returns what the kernel says of all threads of a process.
func tasks(proc string) string {
	var all strings.Builder
	files, _ := filepath.Glob(proc + "/task/*/status")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all.Write(b)
	}
	return all.String()
}

// fields reads "name: number" lines.
func fields(path string) map[string]int {
	b, _ := os.ReadFile(path)
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if f := strings.Fields(value); len(f) > 0 {
			out[name], _ = strconv.Atoi(f[0])
		}
	}
	return out
}

// used is the CPU time of a process, by the kernel's ticks of 10 ms.
func used(proc string) time.Duration {
	b, _ := os.ReadFile(proc + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
