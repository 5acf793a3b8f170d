package house_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// The tables of the guarantees are written from the results of a run of the tests, which are
// stored. This file compares the page, the stored results and the sources of the tests.

const storedResults = "docs/guarantees/results.json"

// guaranteePages are the pages with the tables.
var guaranteePages = []string{"docs/guarantees.md", "docs/failures.md", "docs/failures-redlock.md"}

// guarantees returns the pages as one text.
func guarantees(t *testing.T) string {
	t.Helper()
	var all []string
	for _, name := range guaranteePages {
		all = append(all, readText(t, name))
	}
	return strings.Join(all, "\n")
}

var runGuarantees = flag.Bool("guarantees", false, "run the tests with a verdict, and write "+storedResults+" and the tables of the guarantees")

// examined are the packages whose TestExam is the conformance suite of an engine, with its name there.
var examined = examinedBy()

// results are what a run of the tests has shown.
type results struct {
	Suite    map[string][]string `json:"suite"`    // by case: the engines that passed it
	Verdicts []shown             `json:"verdicts"` // sorted
}

// shown is a verdict that a test asserts. Test has its folder.
type shown struct {
	Scenario string `json:"scenario"`
	Verdict  string `json:"verdict"`
	Test     string `json:"test"`
}

// split returns the folder and the name of the test.
func (s shown) split() (folder, name string) {
	dot := strings.LastIndexByte(s.Test, '.')
	return s.Test[:dot], s.Test[dot+1:]
}

func (s shown) String() string { return fmt.Sprintf("%s: %q is %s", s.Test, s.Scenario, s.Verdict) }

func sortShown(all []shown) []shown {
	slices.SortFunc(all, func(a, b shown) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Test, b.Test))
	})
	return slices.Compact(all)
}

// verdictNames are the constants of package verdict.
var verdictNames = map[string]verdict.Verdict{
	"Safe": verdict.Safe, "Guarded": verdict.Guarded, "Refused": verdict.Refused, "Unsafe": verdict.Unsafe,
}

// asserted returns the verdicts in the sources of the tests.
func asserted(all []sourceFile) (found []shown, faults []string) {
	for _, s := range all {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !s.showsVerdicts() {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isSelector(call.Fun, "verdict", "Is") {
					return true
				}
				at := s.fset.Position(call.Pos())
				scenario, of := literal(call.Args[1]), verdictOf(call.Args[2])
				if scenario == "" || of == "" || !strings.HasPrefix(f.Name.Name, "Test") {
					faults = append(faults, fmt.Sprintf("%v: want verdict.Is(t, a string, verdict.X), directly in a test", at))
					return true
				}
				found = append(found, shown{scenario, string(of), s.folder + "." + f.Name.Name})
				return true
			})
		}
	}
	return sortShown(found), faults
}

// showsVerdicts reports whether a file's calls of verdict.Is count: those in its own test are made up.
func (s sourceFile) showsVerdicts() bool { return s.test && s.folder != "internal/testkit/verdict" }

func isSelector(e ast.Expr, of, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == of
}

func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok {
		text, _ := strconv.Unquote(lit.Value)
		return text
	}
	return ""
}

func verdictOf(e ast.Expr) verdict.Verdict {
	for name, v := range verdictNames {
		if isSelector(e, "verdict", name) {
			return v
		}
	}
	return ""
}

// table is where a line of the page is: below which heading, and in which columns.
type table struct {
	heading string // up to a colon, without marks
	columns []string
}

// unmarked is Markdown without its marks.
func unmarked(text string) string {
	return strings.NewReplacer("`", "", "**", "").Replace(linkText.ReplaceAllString(text, "$1$2"))
}

func cells(line string) (all []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// rewritten is the page with its tables written from the results. Scenarios are the rows of the
// failure tables. A verdict or a promise may be followed by a comma or a colon and more words.
func rewritten(text string, r results) (page string, scenarios []string, faults []string) {
	var in table
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			name, _, _ := strings.Cut(unmarked(strings.TrimLeft(line, "# ")), ":")
			in = table{heading: name}
		case !strings.HasPrefix(line, "|"):
			in.columns = nil
		case in.columns == nil:
			in.columns = cells(line)
		case strings.HasPrefix(line, "|--"):
		default:
			row := cells(line)
			if len(row) != len(in.columns) {
				faults = append(faults, fmt.Sprintf("%d cells in %d columns: %s", len(row), len(in.columns), line))
				break
			}
			if i := slices.Index(in.columns, "verdict"); i >= 0 {
				scenario := in.heading + ": " + unmarked(row[0])
				scenarios = append(scenarios, scenario)
				faults = append(faults, r.fillFailure(row, i, scenario)...)
			} else if i := slices.Index(in.columns, "cases"); i >= 0 {
				faults = append(faults, r.fillPromise(in, row, i)...)
			}
			line = "| " + strings.Join(row, " | ") + " |"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), scenarios, faults
}

// fillFailure writes the verdict of a row.
func (r results) fillFailure(row []string, column int, scenario string) (faults []string) {
	verdicts := map[string]bool{}
	for _, s := range r.Verdicts {
		if s.Scenario == scenario {
			verdicts[s.Verdict] = true
		}
	}
	of := slices.Sorted(maps.Keys(verdicts))
	if len(of) != 1 {
		return []string{fmt.Sprintf("%q has %d verdicts, %v, want one", scenario, len(of), of)}
	}
	row[column] = of[0] + remark(row[column])
	return nil
}

// fillPromise writes for each engine whether it passed the cases of a row.
func (r results) fillPromise(in table, row []string, column int) (faults []string) {
	kept := map[string]bool{}
	for name := range strings.SplitSeq(row[column], ", ") {
		engines, ok := r.Suite[strings.Trim(name, "`")]
		if !ok {
			faults = append(faults, fmt.Sprintf("%q: no results of case %s", row[0], name))
		}
		for _, engine := range engines {
			kept[engine] = true
		}
	}
	for _, engine := range examined {
		i := slices.Index(in.columns, engine)
		if i < 0 {
			faults = append(faults, fmt.Sprintf("%q: the table has no column %s", row[0], engine))
			continue
		}
		promise := "-"
		if kept[engine] {
			promise = "yes"
		}
		row[i] = promise + remark(row[i])
	}
	return faults
}

// remark is what follows a verdict in its cell.
func remark(cell string) string {
	if i := strings.IndexAny(cell, ",:"); i >= 0 {
		return cell[i:]
	}
	return ""
}

// checkGuarantees compares the page, the results and what the tests assert.
func checkGuarantees(page string, r results, tests []shown) (faults []string) {
	want, scenarios, faults := rewritten(page, r)
	if page != want {
		faults = append(faults, "the guarantees differ from "+storedResults+firstDifference(page, want))
	}
	for _, s := range r.Verdicts {
		if !slices.Contains(tests, s) {
			faults = append(faults, "no test asserts what is stored: "+s.String())
		}
		if !slices.Contains(scenarios, s.Scenario) {
			faults = append(faults, "the page has no such row: "+s.String())
		}
	}
	for _, s := range tests {
		if !slices.Contains(r.Verdicts, s) {
			faults = append(faults, "not in the stored results: "+s.String())
		}
	}
	cases := map[string]bool{}
	for _, c := range drivertest.Cases() {
		if cases[c.Name] = true; r.Suite[c.Name] == nil {
			faults = append(faults, "no engine passed the case "+c.Name)
		}
	}
	for name := range r.Suite {
		if !cases[name] {
			faults = append(faults, "there is no case "+name)
		}
	}
	return faults
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf(" in line %d:\n%s\nwant\n%s", i+1, a[i], b[i])
		}
	}
	return ""
}

func readResults(t *testing.T) (r results) {
	t.Helper()
	if err := json.Unmarshal([]byte(readText(t, storedResults)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGuarantees: the tables of the page are what the tests have shown, and what they assert.
func TestGuarantees(t *testing.T) {
	tests, faults := asserted(sources(t))
	if *runGuarantees && len(faults) == 0 {
		writeGuarantees(t, tests)
	}
	faults = append(faults, checkGuarantees(guarantees(t), readResults(t), tests)...)
	for _, fault := range faults {
		t.Errorf("%s (make guarantees writes the pages)", fault)
	}
}

// TestGuaranteesRefuse: a verdict that is changed in a test, in the page or in the results is found,
// as is a promise.
func TestGuaranteesRefuse(t *testing.T) {
	all, page := sources(t), guarantees(t)
	stored := readResults(t)
	before, _ := asserted(all)
	for name, flipped := range map[string]string{"Safe": "Unsafe", "Guarded": "Safe", "Refused": "Safe", "Unsafe": "Guarded"} {
		undo := flip(all, name, flipped)
		if undo == nil {
			t.Fatalf("no test asserts verdict.%s", name)
		}
		after, _ := asserted(all)
		undo()
		if faults := checkGuarantees(page, stored, after); len(faults) != 2 {
			t.Errorf("a test says %s instead of %s: %q, want two faults", flipped, name, faults)
		}
	}
	for what, change := range map[string]func(r *results, page *string){
		"a verdict of the page": func(_ *results, page *string) { *page = strings.Replace(*page, "| unsafe", "| safe", 1) },
		"a promise of the page": func(_ *results, page *string) { *page = strings.Replace(*page, "| - |", "| yes |", 1) },
		"a row without a scenario": func(_ *results, page *string) {
			*page = strings.Replace(*page, "| the holder is killed", "| it rains", 1)
		},
		"a promise in the results":  func(r *results, _ *string) { r.Suite["fifo"] = r.Suite["fifo"][1:] },
		"a verdict in the results":  func(r *results, _ *string) { r.Verdicts[0].Verdict = "safe, they say" },
		"a scenario in the results": func(r *results, _ *string) { r.Verdicts = r.Verdicts[1:] },
	} {
		r, changed := readResults(t), page
		if change(&r, &changed); len(checkGuarantees(changed, r, before)) == 0 {
			t.Errorf("%s was changed, and nothing is wrong", what)
		}
	}
	if after, _ := asserted(all); !slices.Equal(after, before) {
		t.Error("the sources were not put back")
	}
}

// flip changes the first call of verdict.Is with one verdict to another one.
func flip(all []sourceFile, from, to string) (undo func()) {
	for _, s := range all {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if undo == nil && ok && s.showsVerdicts() && isSelector(call.Fun, "verdict", "Is") && isSelector(call.Args[2], "verdict", from) {
				sel := call.Args[2].(*ast.SelectorExpr).Sel
				sel.Name, undo = to, func() { sel.Name = from }
			}
			return true
		})
	}
	return undo
}

// writeGuarantees runs the tests, and writes the results and the pages.
func writeGuarantees(t *testing.T, tests []shown) {
	t.Helper()
	names := map[string]map[string]bool{} // by folder
	for folder := range examined {
		names[folder] = map[string]bool{"TestExam": true}
	}
	for _, s := range tests {
		folder, test := s.split()
		if names[folder] == nil {
			names[folder] = map[string]bool{}
		}
		names[folder][test] = true
	}
	r := results{Suite: map[string][]string{}}
	for _, folder := range slices.Sorted(maps.Keys(names)) {
		r.run(t, folder, slices.Sorted(maps.Keys(names[folder])))
	}
	r.Verdicts = sortShown(r.Verdicts)
	for _, engines := range r.Suite {
		slices.Sort(engines)
	}
	written := map[string]string{storedResults: r.text(t)}
	for _, name := range guaranteePages {
		written[name], _, _ = rewritten(readText(t, name), r)
	}
	for name, text := range written {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// text is the results as JSON, with a case or a verdict a line.
func (r results) text(t *testing.T) string {
	t.Helper()
	line := func(v any) string {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var suite, verdicts []string
	for _, name := range slices.Sorted(maps.Keys(r.Suite)) {
		suite = append(suite, line(name)+": "+line(r.Suite[name]))
	}
	for _, s := range r.Verdicts {
		verdicts = append(verdicts, line(s))
	}
	return "{\"suite\": {\n" + strings.Join(suite, ",\n") + "\n},\n\"verdicts\": [\n" + strings.Join(verdicts, ",\n") + "\n]}\n"
}

// run runs tests of one folder and adds what they show.
func (r *results) run(t *testing.T, folder string, tests []string) {
	t.Helper()
	module, pkg := ".", folder
	if below, ok := strings.CutPrefix(folder, "cmd/"); ok {
		module, pkg = "cmd", below
	}
	cmd := exec.Command("go", "test", "-C", module, "-json", "-count=1", "-timeout=10m", "-run", "^("+strings.Join(tests, "|")+")$", "./"+pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	failed := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var e struct{ Action, Test, Key, Value, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		test, sub, _ := strings.Cut(e.Test, "/")
		scenario, of, ok := strings.Cut(e.Value, verdict.Separator)
		switch {
		case e.Action == "attr" && e.Key == "verdict" && ok:
			r.Verdicts = append(r.Verdicts, shown{scenario, of, folder + "." + test})
		case e.Action == "pass" && test == "TestExam" && sub != "" && !strings.Contains(sub, "/"):
			r.Suite[sub] = append(r.Suite[sub], examined[folder])
		case e.Action == "output":
			failed += e.Output
		}
	}
	if err != nil || lines.Err() != nil {
		t.Fatalf("%s: %v, %v\n%s", folder, err, lines.Err(), failed)
	}
}
