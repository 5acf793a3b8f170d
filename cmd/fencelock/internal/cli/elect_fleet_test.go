//go:build unix

package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

const (
	fleetTTL  = 2 * time.Second
	fleetSize = 5
	fleetRest = 100 * time.Millisecond // what a leader does before it is disturbed
)

// fleet is processes that campaign for one name, and the log their leader writes.
type fleet struct {
	t       *testing.T
	url     string
	ttl     time.Duration
	log     string
	members map[int]*member // by pid
	left    map[int]bool    // those that were ended
	exec    []time.Duration // how long the start of a process took
}

// member is one "fencelock elect".
type member struct {
	*exec.Cmd

	mu    sync.Mutex // guards said
	said  []string
	heard []time.Time
}

func newFleet(t *testing.T, url string, ttl time.Duration) *fleet {
	dir, err := os.MkdirTemp("", "fencelock-fleet")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fleet{t: t, url: url, ttl: ttl, log: filepath.Join(dir, "log"), members: map[int]*member{}, left: map[int]bool{}}
	t.Cleanup(f.dismiss)
	for range fleetSize {
		f.join()
	}
	return f
}

// dismiss kills all members.
func (f *fleet) dismiss() {
	for pid := range f.members {
		f.end(pid, unix.SIGKILL)
	}
}

// join starts another process.
func (f *fleet) join() {
	f.t.Helper()
	m := &member{Cmd: exec.Command("sh", "-c", `MEMBER=$$ exec fencelock "$@"`, "sh", "elect", "--url", f.url, "--ttl", f.ttl.String(), "boss", "--", "fencedlog", f.log)}
	ours, theirs, err := os.Pipe()
	must(f.t, err)
	m.Stderr = theirs
	must(f.t, m.Start())
	theirs.Close()
	f.members[m.Process.Pid] = m
	go m.listen(ours) // ends when the process and its command have
}

func (m *member) listen(r *os.File) {
	defer r.Close()
	for s := bufio.NewScanner(r); s.Scan(); {
		m.mu.Lock()
		m.said, m.heard = append(m.said, s.Text()), append(m.heard, time.Now())
		m.mu.Unlock()
	}
}

// word returns when a process said the last line that contains text; zero if never.
func (m *member) word(text string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, line := range slices.Backward(m.said) {
		if strings.Contains(line, text) {
			return m.heard[i]
		}
	}
	return time.Time{}
}

// end sends a signal to a member, waits for its end and returns its exit code.
func (f *fleet) end(pid int, sig unix.Signal) int {
	f.t.Helper()
	m := f.members[pid]
	delete(f.members, pid)
	f.left[pid] = true
	must(f.t, m.Process.Signal(sig))
	m.Wait()
	return m.ProcessState.ExitCode()
}

// leader waits for a term after the given one, of a member that was not ended meanwhile,
// and returns its first entry.
func (f *fleet) leader(after int64) (first entry) {
	f.t.Helper()
	eventually(f.t, "somebody leads", func() bool {
		for _, e := range readLog(f.t, f.log) {
			if e.what == "begin" && e.token > after && !f.left[e.parent] {
				first = e
				return true
			}
		}
		return false
	})
	if f.members[first.parent] == nil {
		f.t.Fatalf("the leader's parent %d is no member", first.parent)
	}
	return first
}

// last returns the last entry of a term.
func (f *fleet) last(token int64) (last entry) {
	f.t.Helper()
	for _, e := range readLog(f.t, f.log) {
		if e.token == token {
			last = e
		}
	}
	return last
}

// sample times the start of a process, which a new leader needs. It tells how busy
// this machine is.
func (f *fleet) sample() {
	began := time.Now()
	must(f.t, exec.Command("fencedlog").Run())
	f.exec = append(f.exec, time.Since(began))
}

// killed kills leaders with SIGKILL: there is another within the TTL and a second.
func (f *fleet) killed(times int) {
	var took []time.Duration
	token := int64(0)
	for range times {
		f.sample()
		l := f.leader(token)
		time.Sleep(fleetRest)
		dead := time.Now()
		f.end(l.parent, unix.SIGKILL)
		f.join()
		took = append(took, f.leader(l.token).at.Sub(dead))
		token = l.token
	}
	f.t.Logf("%d leaders killed: the next one wrote after %v", times, spread(took))
	if limit := f.ttl + time.Second + f.allowance(); slices.Max(took) > limit {
		f.t.Errorf("it took longer than %v", limit)
	}
}

// allowance is how much longer than promised something may take: on a machine that has
// other things to do, one that is woken up may have to wait long until it runs.
func (f *fleet) allowance() time.Duration {
	if os.Getenv("FENCELOCK_SLOW") != "" {
		return 2 * slices.Max(f.exec)
	}
	return 20 * time.Second
}

// stopped stops leaders with SIGTERM: the next one follows at once, and not when a lease
// of a minute has ended.
func (f *fleet) stopped(times int) {
	var led, wrote []time.Duration
	for range times {
		f.sample()
		l := f.leader(f.newest() - 1)
		time.Sleep(fleetRest)
		code := f.end(l.parent, unix.SIGTERM)
		over, next := f.last(l.token), f.leader(l.token)
		f.join()
		if code != 0 || over.what != "end" {
			f.t.Errorf("a leader that was stopped exited with %d; its last line is %+v", code, over)
		}
		led = append(led, f.members[next.parent].word("leading").Sub(over.at))
		wrote = append(wrote, next.at.Sub(over.at))
	}
	f.t.Logf("%d leaders stopped: since the end of its command, the next one led after %v, its command wrote after %v",
		len(led), spread(led), spread(wrote))
	if limit := 100*time.Millisecond + f.allowance(); median(led) > limit {
		f.t.Errorf("half of the time it took longer than %v", limit)
	}
}

// below returns the processes that descend from pid.
func below(pid int) (all []int) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for row := range strings.Lines(string(out)) {
		var child, parent int
		fmt.Sscan(row, &child, &parent)
		children[parent] = append(children[parent], child)
	}
	all = children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// newest returns the greatest token in the log.
func (f *fleet) newest() (token int64) {
	for _, e := range readLog(f.t, f.log) {
		token = max(token, e.token)
	}
	return token
}

// frozen stops the leader and its command for longer than the TTL: another leads
// meanwhile, and the command is gone before it can write again. With whole its
// watchdog is stopped too, as on a host that sleeps, and the command goes on first: the
// guard refuses what it writes. It returns the pid of the command.
func (f *fleet) frozen(whole bool) int {
	l := f.leader(f.newest() - 1)
	time.Sleep(fleetRest)
	pids := []int{l.child, l.parent}
	for _, pid := range below(l.parent) {
		if whole && pid != l.child {
			pids = append(pids, pid)
		}
	}
	m, began := f.members[l.parent], time.Now()
	signalAll(pids, unix.SIGSTOP)
	next := f.leader(l.token)
	time.Sleep(max(0, 2*f.ttl-time.Since(began)))
	signalAll(pids[:1], unix.SIGCONT)
	if whole {
		time.Sleep(fleetRest) // so that it writes what the guard must refuse
	}
	woke := time.Now()
	signalAll(pids[1:], unix.SIGCONT)
	eventually(f.t, "the command of the thawed leader is gone", func() bool { return !running(l.child) })
	gone := time.Since(woke)
	eventually(f.t, "the thawed leader campaigns again", func() bool { return m.word("campaigning").After(l.at) })
	f.t.Logf("a leader frozen with its %d processes: another one wrote after %v; once they went on, its command was gone after %v",
		len(pids)-1, next.at.Sub(began).Round(time.Millisecond), gone.Round(time.Millisecond))
	return l.child
}

// rigid is frozen for an engine whose locks end with their process only: the frozen
// leader stays the leader.
func (f *fleet) rigid() {
	l := f.leader(f.newest() - 1)
	pids := []int{l.child, l.parent}
	signalAll(pids, unix.SIGSTOP)
	time.Sleep(2 * f.ttl)
	signalAll(pids, unix.SIGCONT)
	before := f.last(l.token)
	eventually(f.t, "the thawed leader goes on", func() bool { return f.last(l.token).at.After(before.at) })
	if newest := f.newest(); newest != l.token {
		f.t.Errorf("term %d began beside a frozen leader", newest)
	}
}

// judge fails the test if the log shows two leaders at once; see guard.
func (f *fleet) judge(late int) (terms, refused int) {
	f.t.Helper()
	terms, refused, wrong := guard(readLog(f.t, f.log), late)
	if len(wrong) > 0 {
		f.t.Errorf("%d times: %s", len(wrong), wrong[0])
	}
	return terms, refused
}

func signalAll(pids []int, sig unix.Signal) {
	for _, pid := range pids {
		if pid > 1 {
			unix.Kill(pid, sig)
		}
	}
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

// spread is what a log says of many times: their median and the longest.
func spread(d []time.Duration) string {
	return median(d).Round(time.Millisecond).String() + " (median), " + slices.Max(d).Round(time.Millisecond).String() + " (longest)"
}

// fleetEngines start a store and return its URL.
var fleetEngines = map[string]func(t *testing.T) string{
	"files": func(t *testing.T) string {
		dir, err := os.MkdirTemp("", "fencelock-fleet")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		return "file://" + dir
	},
	"redis":    func(t *testing.T) string { return "redis://" + redistest.StartRedis(t).Addr() },
	"postgres": func(t *testing.T) string { return pgtest.StartPostgres(t).DSN() },
	"redlock": func(t *testing.T) string {
		var addrs []string
		for range 3 {
			addrs = append(addrs, redistest.StartRedis(t).Addr())
		}
		url := "redlock://" + strings.Join(addrs, ",")
		must(t, exec.Command("fencelock", "init", "--yes", "--url", url).Run())
		return url
	},
}

// TestElectFleet disturbs the leaders of five processes, and reads in their log that
// there were never two. With FENCELOCK_SLOW set it does so on every engine, and for
// longer.
func TestElectFleet(t *testing.T) {
	engines, kills, stops := []string{"files", "redis"}, 2, 3
	slow := os.Getenv("FENCELOCK_SLOW") != ""
	if slow {
		engines, kills, stops = []string{"files", "redis", "redlock", "postgres"}, 20, 9
	} else {
		t.Parallel() // nobody looks closely at how long it takes
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			if !slow {
				t.Parallel()
			}
			calm := newFleet(t, fleetEngines[engine](t), time.Minute)
			calm.stopped(stops)
			calm.judge(0)
			calm.dismiss()
			f := newFleet(t, fleetEngines[engine](t), fleetTTL)
			f.killed(kills)
			late := 0
			if engine == "files" {
				f.rigid()
			} else {
				f.frozen(false)
				f.judge(0)
				late = f.frozen(true)
			}
			terms, refused := f.judge(late)
			t.Logf("%d terms, never two leaders; %d lines of a process frozen as a whole were refused; starting a process took %v",
				terms, refused, spread(f.exec))
		})
	}
}
