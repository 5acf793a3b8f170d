package house_test

import (
	"cmp"
	"flag"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/internal/catalog"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/go-redis/v9"
)

// The catalog of engines agrees with the code, and the pages with the catalog.

var writePages = flag.Bool("write", false, "write the pages again: what they have from the catalog, and the tables of the guarantees")

// written is a page with everything that is written from the catalog, the metrics and stored results.
func written(name, text string, r results) (page string, faults []string) {
	page, faults = writeMarks(name, writeMetrics(text))
	if slices.Contains(guaranteePages, name) {
		var more []string
		page, _, more = rewritten(page, r)
		faults = append(faults, more...)
	}
	return page, faults
}

// TestPagesAreWritten: the tables and paragraphs between marks agree with the catalog.
func TestPagesAreWritten(t *testing.T) {
	r := readResults(t)
	for _, name := range documents(t) {
		text := readText(t, name)
		want, faults := written(name, text, r)
		for _, fault := range faults {
			t.Error(fault)
		}
		switch {
		case want == text:
		case *writePages:
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s is not what the catalog says (make docs writes it)%s", name, firstDifference(text, want))
		}
	}
}

// defaults are the engines with their default configuration, by package. They need no server: no client
// connects before its first request.
var defaults = map[string]driver.Engine{
	"redislock": goredis.New(redis.NewClient(&redis.Options{}), nil), "pglock": pglock.New(nil, nil), "redlock": redlock.New(nil, nil),
	"filelock": filelock.New("", nil), "memlock": memlock.New(nil), "recordlock": recordlock.New(memlock.New(nil).Records(), nil),
}

// traits returns what an engine, or recordlock on a store, declares.
func traits(e catalog.Engine) driver.Traits {
	if e.Store() {
		return defaults["recordlock"].Traits()
	}
	return defaults[e.Package].Traits()
}

// minTTL returns the shortest TTL that a request may have.
func minTTL(e catalog.Engine) time.Duration { return cmp.Or(traits(e).MinTTL, driver.MinTTL) }

// rates reports whether package ratelimit works: on rates of the engine, or on records and a clock.
func rates(e catalog.Engine) bool { return traits(e).Rates || e.Records && !e.NoClock }

// TestCatalogTraits: the catalog and the engines agree.
func TestCatalogTraits(t *testing.T) {
	for _, e := range catalog.Engines {
		if e.Store() {
			continue // its engine is recordlock
		}
		engine, ok := defaults[e.Package]
		if !ok {
			t.Errorf("%s: add it to defaults of this test", e.Name)
			continue
		}
		of := reflect.TypeOf(engine)
		if has := of.Implements(reflect.TypeFor[driver.RecordKeeper]()); has != e.Records {
			t.Errorf("%s keeps records: %t, the catalog has %t", e.Name, has, e.Records)
		}
		if has := of.Implements(reflect.TypeFor[driver.Adopter]()); has != e.Adopts {
			t.Errorf("%s adopts: %t, the catalog has %t", e.Name, has, e.Adopts)
		}
		if has := of.Implements(reflect.TypeFor[driver.RateLimiter]()); has != traits(e).Rates {
			t.Errorf("%s has rates: %t, its traits have %t", e.Name, has, traits(e).Rates)
		}
	}
}

// TestCatalogResults: what the conformance suite has shown agrees with the catalog.
func TestCatalogResults(t *testing.T) {
	r := readResults(t)
	for _, e := range catalog.Engines {
		for name, want := range map[string]bool{
			"limit": traits(e).Limits, "rate": traits(e).Rates, "fifo": traits(e).Order == driver.OrderAll, "order-process": traits(e).Order == driver.OrderProcess,
			"crash-frees": e.Death == catalog.AtOnce, "expiry": e.Death != catalog.AtOnce, "adopt": e.Adopts, "record-swap": e.Records,
		} {
			if got := slices.Contains(r.Suite[name], e.Suite); got != want {
				t.Errorf("%s passed the case %s: %t, the catalog wants %t", e.Name, name, got, want)
			}
		}
	}
}

// TestCatalogIsComplete: each engine and each store in the sources has a row, each row a test that
// runs the conformance suite, and each page the facts of its engines and the medians of their rows.
func TestCatalogIsComplete(t *testing.T) {
	packages, reports, clockless := map[string]bool{}, map[string]bool{}, map[string]bool{} // by folder
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if engineOrStore(s, f) {
				packages[s.folder] = true
			}
			if f.Recv != nil && f.Name.Name == "Await" {
				reports[s.folder] = true
			}
			if f.Recv != nil && f.Name.Name == "Clock" && usesErrUnsupported(f) {
				clockless[s.folder] = true
			}
		}
	}
	rows := map[string]bool{}
	for _, e := range catalog.Engines {
		rows[e.Package] = true
		if !hasTest(t, e.Exam) {
			t.Errorf("%s: there is no test %s", e.Name, e.Exam)
		}
		if wakes := e.Wake == catalog.Watch || e.Wake == catalog.Either; e.Store() && wakes != reports[e.Package] {
			t.Errorf("%s reports changes (driver.Awaiter): %t, the catalog has %q", e.Name, reports[e.Package], e.Wake)
		}
		if e.Store() && e.NoClock != clockless[e.Package] {
			t.Errorf("%s has no clock: %t, the catalog has %t", e.Name, clockless[e.Package], e.NoClock)
		}
		text := readText(t, "docs/"+e.Page)
		if !strings.Contains(text, "<!-- engines facts "+e.Name+" -->") {
			t.Errorf("docs/%s does not have <!-- engines facts %s -->", e.Page, e.Name)
		}
		text = strings.Join(strings.Fields(mark.ReplaceAllString(text, "")+readText(t, "docs/benchmarks.md")), " ")
		for _, median := range []string{e.Acquire, e.HandOver} {
			if !strings.Contains(text, median) {
				t.Errorf("%s: neither its page nor benchmarks.md has %q", e.Name, median)
			}
		}
	}
	for folder := range packages {
		if !rows[folder] {
			t.Errorf("%s is an engine or a store, and has no row in internal/catalog", folder)
		}
	}
	if len(packages) < 10 || packages["."] {
		t.Errorf("this test does not see the engines and stores: %v", slices.Sorted(maps.Keys(packages)))
	}
}

// usesErrUnsupported reports whether a function names driver.ErrUnsupported.
func usesErrUnsupported(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		found = found || ok && isSelector(e, "driver", "ErrUnsupported")
		return true
	})
	return found
}

// hasTest reports whether a folder, in any module, has a test, such as "redislock.TestExam".
func hasTest(t *testing.T, test string) bool {
	t.Helper()
	folder, name, _ := strings.Cut(test, ".")
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool { return strings.Contains(readText(t, file), "\nfunc "+name+"(") })
}

// engineOrStore reports whether f is the method by which a package has an engine, Traits, or a store of
// records, Swap. The records of an engine are not a store of their own.
func engineOrStore(s sourceFile, f *ast.FuncDecl) bool {
	if f.Recv == nil || !f.Name.IsExported() || house(s.folder) != library || strings.HasPrefix(s.folder, "driver/") || strings.Contains("/"+s.folder+"/", "/internal/") {
		return false
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported() && (f.Name.Name == "Traits" || f.Name.Name == "Swap")
}

// engineNames are the words by which pages name engines, each with the engine.
var engineNames = map[string]string{
	"Redis": "Redis", "redislock": "Redis", "Redlock": "Redlock", "redlock": "Redlock", "PostgreSQL": "PostgreSQL", "pglock": "PostgreSQL",
	"files": "files", "Files": "files", "filelock": "files", "memory": "memory", "memlock": "memory", "recordlock": "records", "records": "records", "Records": "records",
	"MariaDB": "MariaDB", "MySQL": "MariaDB", "Kubernetes": "Kubernetes", "kuberecords": "Kubernetes", "S3": "S3", "etcd": "etcd", "NATS": "NATS",
	"DynamoDB": "DynamoDB", "Azure": "Azure", "Google": "Google",
}

// byHand are the pages that still list engines outside of marks, and in how many places at most. They say
// what each failure does, one engine after another, or are about guards and other libraries. Do not
// raise a number: use a mark, name two engines and link, or end the line with <!-- some engines -->.
var byHand = map[string]int{
	"docs/chaos.md": 2, "docs/cron.md": 1, "docs/languages.md": 1, "docs/recipes.md": 1, "docs/specification.md": 3, "docs/pictures/README.md": 1,
	"clients/python/README.md": 1, "CONTRIBUTING.md": 2, "contrib/skill/SKILL.md": 1,
}

var someEngines = regexp.MustCompile(`(?m)^.*<!-- some engines -->$`)

// listed returns the sentences, items and rows that name three engines or more outside of marks.
func listed(text string) (found []string) {
	text = someEngines.ReplaceAllString(mark.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), ""), "")
	for _, block := range regexp.MustCompile(`\n\s*\n|\n *(?:[-*]|\d+\.) |\n\|`).Split(text, -1) {
		for _, sentence := range regexp.MustCompile(`[.:;]\s`).Split(block, -1) {
			of := map[string]bool{}
			for _, word := range regexp.MustCompile(`\w+`).FindAllString(linkText.ReplaceAllString(sentence, "$1$2"), -1) {
				if engine, ok := engineNames[word]; ok {
					of[engine] = true
				}
			}
			if len(of) >= 3 {
				found = append(found, strings.Join(strings.Fields(sentence), " "))
			}
		}
	}
	return found
}

// TestNoEnginesByHand: only marks list engines, so that a new engine changes every list.
func TestNoEnginesByHand(t *testing.T) {
	for _, name := range documents(t) {
		if name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/internals/") || name == "docs/evidence.md" || slices.Contains(guaranteePages, name) {
			continue // history, the code, and what is written from results
		}
		if all := listed(readText(t, name)); len(all) > byHand[name] {
			t.Errorf("%s lists engines in %d places by hand, %d are allowed:\n%s", name, len(all), byHand[name], strings.Join(all, "\n"))
		}
	}
	if n := len(listed("on Redis, files\nand `pglock`. On Redis and files.\n\n- etcd, NATS and S3 <!-- some engines -->\n")); n != 1 {
		t.Errorf("this test finds %d lists, want 1", n)
	}
}

// examinedBy are the engines whose TestExam is the conformance suite, by folder.
func examinedBy() map[string]string {
	all := map[string]string{}
	for _, e := range catalog.Engines {
		if !e.Store() {
			folder, _, _ := strings.Cut(e.Exam, ".")
			all[folder] = e.Suite
		}
	}
	return all
}

// TestCatalogRefuses: a sixteenth engine, or another fact, changes the pages.
func TestCatalogRefuses(t *testing.T) {
	before := catalog.Engines
	defer func() { catalog.Engines = before }()
	pages := func() (all map[string]string) {
		all = map[string]string{}
		for _, name := range documents(t) {
			if text := readText(t, name); strings.Contains(text, "<!-- engines ") {
				all[name], _ = writeMarks(name, text)
			}
		}
		return all
	}
	now := pages()
	changed := func() (n int) {
		for name, text := range pages() {
			if text != now[name] {
				n++
			}
		}
		return n
	}
	catalog.Engines = append(slices.Clone(before), catalog.Engine{Name: "Zookeeper", Suite: "records", Package: "stores/zkrecords", Page: "engines/records.md", Schemes: []string{"zk"}})
	lists := 0
	for name := range now {
		if regexp.MustCompile(`(?m)^<!-- engines (?:engine|package|import) .*-->$`).MatchString(readText(t, name)) {
			lists++
		}
	}
	if n := changed(); n < lists || lists < 4 {
		t.Errorf("a new engine changes %d pages, and %d have tables of engines", n, lists)
	}
	catalog.Engines = slices.Clone(before)
	catalog.Engines[0].Death = catalog.TwoTTLs
	if n := changed(); n < 2 {
		t.Errorf("another fact changes %d pages", n)
	}
	if _, faults := writeMarks("x.md", "<!-- engines none -->\n<!-- end -->\n<!-- engines facts none -->\n<!-- end -->\n<!-- engines say none -->\n<!-- end -->\n<!-- engines use -->\n"); len(faults) != 4 {
		t.Errorf("faults %q, want 4", faults)
	}
}
