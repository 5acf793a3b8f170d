package checks_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/fencelock/fencelock/cmd/fencelockvet/checks"
)

// A program that runs the analyzers by itself, here one of them over the package in
// testdata/src/lockreentry. Together with others, multichecker.Main(checks.All()...) is simpler.
func Example() {
	gopath, err := filepath.Abs("testdata")
	if err != nil {
		log.Fatal(err)
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Env: append(os.Environ(), "GO111MODULE=off", "GOPATH="+gopath),
	}, "lockreentry")
	if err != nil {
		log.Fatal(err)
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{checks.Reentry}, pkgs, nil)
	if err != nil {
		log.Fatal(err)
	}
	found := graph.Roots[0].Diagnostics
	at := pkgs[0].Fset.Position(found[0].Pos)
	fmt.Printf("%d findings, the first in %s:\n%s\n", len(found), filepath.Base(at.Filename), found[0].Message)
	// Output:
	// 10 findings, the first in bad.go:
	// "a" is held here already: locks are not re-entrant, so this Locker.Do blocks until its context or wait limit ends
}

// The checks, by the names of their flags.
func ExampleAll() {
	for _, a := range checks.All() {
		fmt.Println(a.Name)
	}
	// Output:
	// lockunreleased
	// lockouterctx
	// lockreentry
	// lockignorederr
	// locktimeouthandler
	// locktokenunused
}
