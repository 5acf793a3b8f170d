//go:build unix

// Package fleet_test sends fleets of processes to one store, to take overlapping
// sets of locks and to be killed in the middle.
package fleet_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// patience is how long anything may take that must happen at all.
const patience = 2 * time.Minute

// late is how long after the end of its clients a busy server may work on what they sent.
const late = 10 * time.Second

// Processes that take overlapping sets, of which one is killed every 500 ms: no two
// hold a name at once, none waits for ever, and the dead block a name no longer
// than their lease lasts. With FENCELOCK_SLOW set, 20 processes for 30 s on every
// engine.
func TestOverlappingSets(t *testing.T) {
	kinds, size, length := []string{"files", "redis"}, 8, 3*time.Second
	if os.Getenv("FENCELOCK_SLOW") != "" {
		kinds, size, length = []string{"files", "redis", "redlock", "postgres"}, 20, 30*time.Second
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := &fleet{t: t, kind: kind, addr: engines[kind].start(t), dir: makeDir(t)}
			for range size {
				f.launch()
			}
			f.harass(length)
			f.recall()
			f.audit()
			for range size {
				f.launch()
			}
			f.sink()
		})
	}
}

// A fleet is many members on one store.
type fleet struct {
	t               *testing.T
	kind, addr, dir string
	ships           []*ship
	killed          int
}

// A ship is the process of a member.
type ship struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  bytes.Buffer // to be read when gone is closed
	gone chan struct{}
	err  error // how it ended
}

// launch starts one more process. It ends with the test.
func (f *fleet) launch() {
	f.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	s := &ship{cmd: exec.Command(exe), gone: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), envKind+"="+f.kind, envAddr+"="+f.addr, envDir+"="+f.dir)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.kill)
	go func() { // ends with the process
		s.err = s.cmd.Wait()
		close(s.gone)
	}()
	f.ships = append(f.ships, s)
}

// kill ends a process as kill -9 does, and returns when it is gone.
func (s *ship) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.gone
}

// harass kills and replaces one process after the other.
func (f *fleet) harass(length time.Duration) {
	f.t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(length); ; {
		select {
		case <-tick.C:
			i := f.victim()
			select {
			case <-f.ships[i].gone:
				f.t.Fatalf("ended by itself: %v\n%s", f.ships[i].err, f.ships[i].out.String())
			default:
			}
			f.ships[i].kill()
			f.killed++
			f.ships = slices.Delete(f.ships, i, i+1)
			f.launch()
		case <-end:
			return
		}
	}
}

// victim chooses who is killed next: a holder, if the books show one.
func (f *fleet) victim() int {
	f.t.Helper()
	for _, i := range rand.Perm(len(names)) {
		all, err := logbook{f.dir, names[i]}.entries()
		if err != nil {
			f.t.Fatal(err)
		}
		if len(all) == 0 || all[len(all)-1].what != "enter" {
			continue
		}
		for i, s := range f.ships {
			if s.cmd.Process.Pid == all[len(all)-1].pid {
				return i
			}
		}
	}
	return rand.N(len(f.ships))
}

// recall tells all to come home, and waits: each gets all locks once more first,
// so nobody is in a deadlock.
func (f *fleet) recall() {
	f.t.Helper()
	for _, s := range f.ships {
		_, _ = s.in.Write([]byte("\n")) // one that has ended is found below
	}
	limit := time.After(patience)
	for _, s := range f.ships {
		select {
		case <-s.gone:
		case <-limit:
			f.t.Fatal("somebody does not get its locks")
		}
		if s.err != nil {
			f.t.Errorf("%v\n%s", s.err, s.out.String())
		}
	}
	f.ships = nil
}

// sink kills all at once, in the middle. No name is held for longer than a lease
// lasts, and whoever asks for all of them gets them.
func (f *fleet) sink() {
	f.t.Helper()
	before := f.count()
	for deadline := time.Now().Add(patience); f.count() < before+10*len(names); {
		if time.Now().After(deadline) {
			f.t.Fatal("the new fleet gets no locks")
		}
		time.Sleep(10 * time.Millisecond)
	}
	var all sync.WaitGroup
	for _, s := range f.ships {
		all.Go(s.kill)
	}
	all.Wait()
	dead := time.Now()
	e, err := open(f.kind, f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	locks := fencelock.New(e, &fencelock.Config{TTL: ttl})
	f.awaitFree(e.(driver.Lister), dead)
	free := time.Since(dead)
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	set, err := locks.AcquireAll(ctx, names...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("after all were killed, no name is held after %v, and all are ours after %v", free, time.Since(dead))
	if err := set.Release(); err != nil {
		f.t.Error(err)
	}
}

// awaitFree waits until nothing is held any more.
func (f *fleet) awaitFree(locks driver.Lister, dead time.Time) {
	f.t.Helper()
	for {
		asked := time.Now()
		all, err := locks.List(f.t.Context(), driver.Query{Scan: true})
		if err != nil {
			f.t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(s fencelock.Status) bool { return len(s.Holders) == 0 })
		if len(all) == 0 {
			return
		}
		if age := asked.Sub(dead); age > ttl+late {
			f.t.Fatalf("held by the dead after %v: %+v", age, all)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// count returns how many holds the books have.
func (f *fleet) count() (n int) {
	f.t.Helper()
	for _, name := range names {
		all, err := logbook{f.dir, name}.entries()
		if err != nil {
			f.t.Fatal(err)
		}
		n += len(all)
	}
	return n
}

// audit reads the books: tokens grow, and each hold ends before the next begins,
// unless its holder was killed or has lost it.
func (f *fleet) audit() {
	f.t.Helper()
	holds, cut, pause := 0, 0, time.Duration(0)
	for _, name := range names {
		all, err := logbook{f.dir, name}.entries()
		if err != nil {
			f.t.Fatal(err)
		}
		var last entry
		for _, e := range all {
			if e.what == "enter" {
				holds++
				if last.what == "enter" {
					cut++
				}
				if e.token <= last.token {
					f.t.Errorf("%s: %v after %v", name, e, last)
				}
			} else if last.what != "enter" || last.token != e.token {
				f.t.Errorf("%s: %v after %v", name, e, last)
			}
			if last.nanos > 0 {
				pause = max(pause, time.Duration(e.nanos-last.nanos))
			}
			last = e
		}
	}
	f.t.Logf("%d holds, %d cut short by %d kills, the longest pause of a name %v", holds, cut, f.killed, pause.Round(time.Millisecond))
}
