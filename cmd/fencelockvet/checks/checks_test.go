package checks_test

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/packages"

	"github.com/fencelock/fencelock/cmd/fencelockvet/checks"
)

func init() {
	if err := checks.TokenUnused.Flags.Set("on", "true"); err != nil {
		panic(err)
	}
}

// all runs the analyzer after which a package is named, so that the packages are loaded once.
var all = &analysis.Analyzer{
	Name:     "all",
	Doc:      "run the analyzer after which a package is named",
	Requires: []*analysis.Analyzer{ctrlflow.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, a := range checks.All() {
			if a.Name == pass.Pkg.Name() {
				return a.Run(pass)
			}
		}
		return nil, nil
	},
}

// Each analyzer finds the misuses in its directory of testdata, and nothing in the good functions.
func TestAnalyzers(t *testing.T) {
	if err := analysis.Validate(checks.All()); err != nil {
		t.Fatal(err)
	}
	for _, result := range analysistest.RunWithSuggestedFixes(t, analysistest.TestData(), all, names()...) {
		good, bad, found := 0, 0, 0
		for _, file := range result.Pass.Files {
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				reported := ok && slices.ContainsFunc(result.Diagnostics, func(d analysis.Diagnostic) bool { return fn.Pos() <= d.Pos && d.Pos < fn.End() })
				switch {
				case ok && strings.HasPrefix(fn.Name.Name, "good"):
					good++
				case reported:
					bad, found = bad+1, found+1
				case ok && strings.HasPrefix(fn.Name.Name, "bad"):
					bad++
				}
			}
		}
		if good < 12 || bad < 10 || found < bad {
			t.Errorf("%s: %d good functions and %d misuses, of which %d were found", result.Pass.Pkg.Name(), good, bad, found)
		}
		t.Logf("%s: %d of %d misuses found, 0 of %d good functions reported", result.Pass.Pkg.Name(), found, bad, good)
	}
}

// names returns the names of the analyzers.
func names() (all []string) {
	for _, a := range checks.All() {
		all = append(all, a.Name)
	}
	return all
}

// root is the repository. A released module does not have it.
const root = "../../.."

// wanted is an expected diagnostic of the test data.
var wanted = regexp.MustCompile("// want `([^`]*)`")

// The same programs are checked with the library itself, so that the analyzers and the shape of the
// library in testdata follow its API.
func TestRealLibrary(t *testing.T) {
	if mod, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module "+checks.Library+"\n") {
		t.Skip("this is not the repository of the library")
	}
	overlay, patterns := map[string][]byte{}, []string{}
	for _, a := range checks.All() {
		for _, name := range []string{"bad.go", "good.go"} {
			text, err := os.ReadFile(filepath.Join("testdata/src", a.Name, name))
			if err != nil {
				t.Fatal(err)
			}
			file, err := filepath.Abs(filepath.Join(root, "vettest", a.Name, name))
			if err != nil {
				t.Fatal(err)
			}
			overlay[file] = text
		}
		patterns = append(patterns, "./vettest/"+a.Name)
	}
	pkgs := load(t, root, overlay, patterns...)
	adapters := load(t, filepath.Join(root, "cron/schedulers"), nil, "./robfigcron")
	for _, problem := range checks.Mismatches(append(adapters, pkgs...)) {
		t.Error(problem)
	}
	graph, err := checker.Analyze(checks.All(), pkgs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, act := range graph.Roots {
		if act.Err != nil {
			t.Error(act.Err)
		}
		if filepath.Base(act.Package.PkgPath) == act.Analyzer.Name {
			compare(t, act, overlay)
		}
	}
}

// load returns packages of a module of the repository, which must compile.
func load(t *testing.T, module string, overlay map[string][]byte, patterns ...string) []*packages.Package {
	t.Helper()
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Dir: module, Overlay: overlay, Env: append(os.Environ(), "GOWORK=off"),
	}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(pkgs) > 0 {
		t.Fatal("the programs in testdata do not compile with the library")
	}
	return pkgs
}

// compare compares the diagnostics of an analyzer with the comments of its test data.
func compare(t *testing.T, act *checker.Action, overlay map[string][]byte) {
	t.Helper()
	found := map[string][]analysis.Diagnostic{}
	for _, d := range act.Diagnostics {
		at := act.Package.Fset.Position(d.Pos)
		key := fmt.Sprintf("%s:%d", at.Filename, at.Line)
		found[key] = append(found[key], d)
	}
	for _, file := range act.Package.CompiledGoFiles {
		for i, line := range strings.Split(string(overlay[file]), "\n") {
			key := fmt.Sprintf("%s:%d", file, i+1)
			want := wanted.FindStringSubmatch(line)
			switch got := found[key]; {
			case want == nil && len(got) > 0:
				t.Errorf("%s: %s", key, got[0].Message)
			case want != nil && (len(got) != 1 || !regexp.MustCompile(want[1]).MatchString(got[0].Message)):
				t.Errorf("%s: want %q, got %v", key, want[1], got)
			}
		}
	}
}
