// Command evidence measures what docs/evidence.md shows, and writes the page:
//
//	evidence suite               the conformance suite, its mutants and the twins
//	evidence sim -events N       the simulator
//	evidence explore             the explorer
//	evidence nemesis -for 60s    faults on real servers
//	evidence soak                faults on real servers, with more workers and locks, for an hour
//	evidence page                the page, from the files in docs/evidence
//
// Run it in the folder lab. The other files are written by the commands in bench.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// measures are the commands that write one file each.
var measures = map[string]func(flags) (evidence.Report, error){"suite": suite, "sim": simulate, "explore": explored, "nemesis": nemeses, "soak": soak}

// flags are how much is measured.
type flags struct {
	events       int64
	length       time.Duration
	engine       string
	large        bool
	acquisitions int64
}

func main() {
	if err := errors.Join(os.Chdir(".."), run(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, "evidence:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("which: suite, sim, explore, nemesis, soak or page")
	}
	set := flag.NewFlagSet("evidence "+args[0], flag.ContinueOnError)
	var f flags
	set.Int64Var(&f.events, "events", 200_000_000, "play at least so many events in the simulator")
	set.DurationVar(&f.length, "for", time.Minute, "inject faults for so long, on each engine")
	set.StringVar(&f.engine, "engine", "", "inject faults on this engine only, and keep the results of the others")
	set.BoolVar(&f.large, "large", false, "explore large bounds and mutants, too, and take long walks, for an hour and a half")
	set.Int64Var(&f.acquisitions, "acquisitions", 1_000_000, "soak until so many acquisitions are checked, or until an interrupt")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "page" {
		return evidence.WritePage(".")
	}
	measure := measures[args[0]]
	if measure == nil {
		return fmt.Errorf("%q measures nothing: suite, sim, explore, nemesis, soak or page", args[0])
	}
	begun := time.Now()
	report, err := measure(f)
	if err != nil {
		return err
	}
	command := "go run -C lab ./evidence/cmd/evidence " + args[0]
	set.Visit(func(f *flag.Flag) { command += fmt.Sprintf(" -%s %s", f.Name, f.Value) })
	report.Header = evidence.NewHeader(command, begun, nil)
	return evidence.Write(filepath.Join(evidence.Dir, args[0]+".json"), report)
}
