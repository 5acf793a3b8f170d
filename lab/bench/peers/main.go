// Command peers reproduces published faults of other lock libraries on real servers, does the same
// to fencelock, and compares how soon each library reports a lost lock.
//
//	go run -C lab ./bench/peers -list
//	go run -C lab ./bench/peers [-only NAME] [-json FILE]
//	go run -C lab ./bench/peers -compare [-json FILE]
//
// A fault is what the upstream thread describes, played by the proxy, the frozen processes and the
// restarted servers of fencelock's own tests. A library that no Go module proxy serves is written
// again from its published source, and marked so. The command exits with 1 if a fault does not show
// or if fencelock shows it, too.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

func main() {
	if len(os.Args) > 1 && children[os.Args[1]] != nil {
		exit(children[os.Args[1]](os.Args[2:]))
	}
	list := flag.Bool("list", false, "list the scenarios, and play none")
	only := flag.String("only", "", "play these scenarios only; names separated by semicolons")
	compare := flag.Bool("compare", false, "compare when libraries report a loss, instead of playing the scenarios; -only then names libraries")
	runs := flag.Int("runs", 5, "with -compare, play each trial so often, and keep the smallest margin")
	file := flag.String("json", "", "write the results to this file")
	flag.Parse()
	if *compare {
		exit(compareAll(split(*only), *runs, *file))
	}
	chosen, err := choose(split(*only))
	if err == nil && *list {
		fmt.Print(listing(chosen))
		return
	}
	if err == nil {
		err = play(chosen, *file)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// children are the programs that this binary runs in processes of their own.
var children = map[string]func(args []string) error{"worker": work, "etcd": serveEtcd}

// split splits a flag at semicolons.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ";")
}

// choose returns the scenarios with the given names, or all.
func choose(names []string) ([]scenario, error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	var chosen []scenario
	for _, name := range names {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario is named %q; -list lists them", name)
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

func listing(chosen []scenario) string {
	var b strings.Builder
	for _, s := range chosen {
		fmt.Fprintf(&b, "%-24s %s: %s\n%24s %s\n", s.name, s.peer, s.fault, "", s.thread)
	}
	return b.String()
}

// play plays the scenarios one after the other, prints the table and writes the file.
func play(chosen []scenario, file string) error {
	begun := time.Now()
	var results []evidence.Fault
	var failed []error
	for _, s := range chosen {
		fmt.Printf("%s: %s: %s\n", s.name, s.peer, s.fault)
		found, err := s.play()
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
			fmt.Println("  failed:", err)
			continue
		}
		for _, r := range found {
			fmt.Printf("  %-34s %s\n", r.Subject, r.Seen)
			if !r.AsExpected {
				failed = append(failed, fmt.Errorf("%s: %s: %s", s.name, r.Subject, r.Seen))
			}
		}
		results = append(results, found...)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	return evidence.Write(file, evidence.Report{
		Header: evidence.NewHeader("go run -C lab ./bench/peers", begun, versions()),
		Faults: results,
	})
}
