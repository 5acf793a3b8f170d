// Command bench measures fencelock side by side with its peers: for each engine
// all of them in one run, on private servers that it starts and stops itself, in
// rounds in which every contestant has its turn. It prints tables of ratios and
// writes docs/benchmarks.md.
//
//	go run -C lab ./bench scale [-engine redis] [-processes 100] [-names 1000] [-waiters 10000]
//	go run -C lab ./bench quick [-base COMMIT] [-for 100s]
//	go run -C lab ./bench picture [-only handover,turns,cost] [-quick]
//	go run -C lab ./bench [-suite redis] [-only alone,handover] [-with redsync] [-rounds 25] [-quick] [-check]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// settings say how often, and for how long, each figure is measured.
type settings struct {
	rounds int  // interleaved rounds, of which the median counts
	quick  bool // one minute for everything; too rough to publish
	log    func(format string, args ...any)
}

// or returns full, or less of it for a quick look.
func or[T any](s settings, full, quick T) T {
	if s.quick {
		return quick
	}
	return full
}

// measure is one thing to measure of every contestant of a suite.
type measure struct {
	name string
	run  func(*arena, settings) ([]row, error)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		exit(work(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "scale" {
		exit(scale(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "quick" {
		exit(quick(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "picture" {
		exit(record(os.Args[2:]))
	}
	suite := flag.String("suite", "", "run these suites only, and leave the page's other sections alone (modes, postgres-modes, mariadb and hooks run only so); separated by commas: "+strings.Join(suiteNames(), ", "))
	only := flag.String("only", "", "measure these only, and write no page; separated by commas: "+strings.Join(measureNames(suites), ", "))
	rounds := flag.Int("rounds", 25, "interleaved rounds")
	quick := flag.Bool("quick", false, "measure little of everything, and write no page")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to this file")
	with := flag.String("with", "", "let these contestants alone take part, and write no page; separated by commas, beside us and the limit")
	raw := flag.Bool("json", false, "print the rows as JSON and nothing else: the value of each contestant, in seconds where it is a time")
	check := flag.Bool("check", false, "exit with 1 when a bar is missed")
	file := flag.String("o", filepath.Join("bench", "results.md"), "the page to write")
	flag.Parse()
	s := settings{rounds: *rounds, quick: *quick, log: logger(time.Now())}
	if s.quick {
		s.rounds = min(s.rounds, 5)
	}
	exit(profiled(*profile, func() error { return run(s, selection{*suite, *only, *with}, *file, *check, *raw) }))
}

// run measures what is selected and reports.
func run(s settings, sel selection, file string, check, raw bool) error {
	chosen, err := sel.choose()
	if err != nil {
		return err
	}
	var reports []*report
	var missed []string
	for _, suite := range chosen {
		r, err := compare(suite, s)
		if err != nil {
			return err
		}
		if raw {
			if err := json.NewEncoder(os.Stdout).Encode(r.values()); err != nil {
				return err
			}
			continue
		}
		fmt.Println(r.text())
		reports, missed = append(reports, r), append(missed, r.missed()...)
	}
	if !s.quick && !raw && sel.measures == "" && sel.contestants == "" {
		if err := rewrite(file, reports, s); err != nil {
			return err
		}
	}
	if check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// rewrite writes the page again. The sections of suites that did not run stay as they are.
func rewrite(file string, reports []*report, s settings) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(page(string(old), reports, s)), 0o644)
}

// profiled calls fn and writes a CPU profile of it, unless file is empty.
func profiled(file string, fn func() error) error {
	if file == "" {
		return fn()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer f.Close()
	defer pprof.StopCPUProfile()
	return fn()
}

// compare runs the measures of one suite on a server of their own.
func compare(s suite, set settings) (*report, error) {
	a, err := newArena(s)
	if err != nil {
		return nil, err
	}
	defer a.stop()
	r := newReport(a)
	begun := time.Now()
	for _, m := range s.measures {
		set.log("%s: %s", s.name, m.name)
		rows, err := m.run(a, set)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.name, m.name, err)
		}
		r.rows = append(r.rows, rows...)
	}
	r.load = append(r.load, load())
	set.log("%s: done in %.0f s", s.name, time.Since(begun).Seconds())
	return r, nil
}

func logger(begun time.Time) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
