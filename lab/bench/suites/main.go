// Command suites runs the test files of other projects, unchanged, on fencelock. An adapter for each
// project, in a directory here, has the project's API. The test files come from the project's module
// in the module cache and are laid over the adapter's package, so the repository has no copy of them.
//
//	go run -C lab ./bench/suites [-only NAME] [-json FILE]
//
// Redis must be installed, and port 6379 of the loopback interface free: the tests expect a server
// there. The command exits with 1 if a test fails that is not a known difference by design, or if a
// known difference is none.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

func main() {
	only := flag.String("only", "", "run these suites only; names separated by commas")
	file := flag.String("json", "", "write the results to this file")
	flag.Parse()
	if err := run(*only, *file); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(only, file string) error {
	begun := time.Now()
	stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	var results []evidence.Shim
	var failed []error
	for _, s := range suites {
		if only != "" && !strings.Contains(","+only+",", ","+s.name+",") {
			continue
		}
		got, err := s.run(context.Background())
		fmt.Printf("%s %s: %d pass, %d are skipped, %d fail by design\n", s.name, s.version, got.Passed, got.Skipped, len(got.Differences))
		for _, d := range got.Differences {
			fmt.Printf("  %s: %s\n", d.Test, d.Why)
		}
		results, failed = append(results, got), append(failed, err)
	}
	if err := errors.Join(failed...); err != nil || file == "" {
		return err
	}
	return evidence.Write(file, evidence.Report{
		Header: evidence.NewHeader("go run -C lab ./bench/suites", begun, nil),
		Shims:  results,
	})
}
