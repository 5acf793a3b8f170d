package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// quickRuns are measured of this tree and of an earlier commit, in turns.
var quickRuns = [][]string{
	{"-suite", "redis", "-only", "alone,parallel", "-with", onGoredis, "-rounds", "3"},
	{"-suite", "redis", "-only", "handover", "-with", ours, "-rounds", "1"},
	{"-suite", "postgres", "-only", "alone", "-with", ours, "-rounds", "2"},
}

// quickRow is a row of a quick comparison.
type quickRow struct{ suite, what, of, label string }

var quickRows = []quickRow{
	{"redis", "acquire and release, uncontended", ours, "Redis, rueidis: acquire and release"},
	{"redis", "acquire and release, uncontended", onGoredis, "Redis, go-redis: acquire and release"},
	{"redis", "acquire and release, 256 goroutines with a name each", ours, "Redis: 256 goroutines with a name each"},
	{"redis", "hand-over to a waiting process, p50", ours, "Redis: hand-over, p50"},
	{"postgres", "acquire and release, uncontended", ours, "PostgreSQL: acquire and release"},
}

// quick compares this tree with an earlier commit for about so long, and prints ratios.
func quick(args []string) error {
	flags := flag.NewFlagSet("quick", flag.ExitOnError)
	base := flags.String("base", "", "the commit to compare with; by default the last one, or the one before it if nothing has changed since")
	length := flags.Duration("for", 100*time.Second, "how long to measure, beside the time to compile")
	_ = flags.Parse(args) // exits
	dir, err := os.MkdirTemp("", "fencelock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	commit := *base
	if commit == "" {
		changed, err := output("git", "status", "--porcelain", "--untracked-files=no")
		if err != nil {
			return err
		}
		if commit = "HEAD"; changed == "" {
			commit = "HEAD~1"
		}
	}
	trees, err := quickTrees(dir, commit)
	if err != nil {
		return err
	}
	took := [2]map[quickRow][]float64{{}, {}}
	for begun, round := time.Now(), 0; round < 2 || time.Since(begun) < *length; round++ {
		for i := range trees {
			which := (round + i) % 2 // each goes first as often
			for _, run := range quickRuns {
				if err := trees[which].measure(run, took[which]); err != nil {
					return fmt.Errorf("%s: %w", trees[which].name, err)
				}
			}
		}
	}
	fmt.Printf("| | %s | %s | ratio | rounds |\n|---|---:|---:|---:|---:|\n", trees[0].name, trees[1].name)
	for _, r := range quickRows {
		before, now := took[0][r], took[1][r]
		ratio := ratios(map[string][]float64{"before": before, "now": now}, "before")["now"]
		fmt.Printf("| %s | %s | %s | %.3f | %d |\n", r.label, short(percentile(before, 50)), short(percentile(now, 50)), ratio, len(now))
	}
	return nil
}

// quickTree is the benchmark of one state of the source.
type quickTree struct{ name, program string }

// quickTrees builds the benchmark of a commit and of the tree.
func quickTrees(dir, commit string) ([2]quickTree, error) {
	var trees [2]quickTree
	root, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return trees, err
	}
	name, err := output("git", "rev-parse", "--short", commit)
	if err != nil {
		return trees, err
	}
	source := filepath.Join(dir, "source")
	if _, err := output("git", "clone", "--quiet", "--shared", "--no-checkout", root, source); err != nil {
		return trees, err
	}
	if _, err := output("git", "-C", source, "checkout", "--quiet", name); err != nil {
		return trees, err
	}
	trees = [2]quickTree{{name, filepath.Join(dir, "before")}, {"this tree", filepath.Join(dir, "now")}}
	for i, from := range []string{source, root} {
		if _, err := output("go", "build", "-C", filepath.Join(from, "lab"), "-o", trees[i].program, "./bench"); err != nil {
			return trees, err
		}
	}
	return trees, nil
}

// measure makes one run and adds its rows.
func (t quickTree) measure(run []string, took map[quickRow][]float64) error {
	text, err := output(t.program, append([]string{"-json"}, run...)...)
	if err != nil {
		return err
	}
	var rows map[string]map[string]float64
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return err
	}
	for _, r := range quickRows {
		if value, ok := rows[r.what][r.of]; ok && r.suite == run[1] {
			took[r] = append(took[r], value)
		}
	}
	return nil
}

// output runs a command and returns what it prints.
func output(name string, args ...string) (string, error) {
	var failed bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), cmp.Or(saidBy(failed.String()), err))
	}
	return strings.TrimSpace(string(out)), err
}

// saidBy is the last line that a command printed about its failure, as an error.
func saidBy(text string) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return errors.New(last)
	}
	return nil
}
