//go:build unix

package cli

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/supervise"
)

// The output of --json is a contract, and docs/cli-json.md is its text. These tests fail if a field
// is renamed, or if its type changes, without a change of the page.

// sections returns the sections of the page by their headings.
func sections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/cli-json.md")
	must(t, err)
	all := map[string]string{}
	for part := range strings.SplitSeq(string(page), "\n## ") {
		heading, text, _ := strings.Cut(part, "\n")
		all[heading] = text
	}
	return all
}

// jsonType is the type of a field as the page names it.
func jsonType(of reflect.Type) string {
	switch of.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "array"
	}
	if of == reflect.TypeFor[stamp]() {
		return "time"
	}
	return "object"
}

// jsonFields returns the fields of an object, with their types and whether they are optional as the
// page writes that, and the objects in it.
func jsonFields(of reflect.Type) (fields map[string]string, objects map[string]reflect.Type) {
	fields, objects = map[string]string{}, map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(of) {
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" {
			continue
		}
		fields[name] = jsonType(f.Type)
		if tagged && options != "" {
			fields[name] += ", optional"
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if jsonType(inner) == "object" {
			objects[name] = inner
		}
	}
	return fields, objects
}

// TestJSONPage compares the page with what the commands print, in both directions.
func TestJSONPage(t *testing.T) {
	t.Parallel()
	all := sections(t)
	for heading, of := range map[string]reflect.Type{
		"`ls` and `status`": reflect.TypeFor[view](), "`watch`": reflect.TypeFor[eventView](),
		"`break`": reflect.TypeFor[broken](), "`resign`": reflect.TypeFor[resigned](),
		"`jobs`": reflect.TypeFor[jobView](), "`resize`": reflect.TypeFor[resized](),
		"`limit`": reflect.TypeFor[limitAnswer](), "`doctor`": reflect.TypeFor[findingView](),
		"`demo`": reflect.TypeFor[demoView](), "`ui`": reflect.TypeFor[uiView](), "`version`": reflect.TypeFor[build](),
	} {
		text, ok := all[heading]
		if !ok {
			t.Errorf("the page has no section %s", heading)
			continue
		}
		examples := regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindStringSubmatch(text)
		if examples == nil {
			t.Errorf("%s: no example", heading)
			continue
		}
		for line := range strings.Lines(examples[1]) {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Errorf("%s: %v in %s", heading, err, line)
			}
			checkExample(t, heading, object, of)
		}
		checkRows(t, heading, text, of)
	}
}

// checkExample compares an example with the fields of its type.
func checkExample(t *testing.T, where string, object map[string]any, of reflect.Type) {
	t.Helper()
	fields, objects := jsonFields(of)
	for name, value := range object {
		kind, optional := strings.CutSuffix(fields[name], ", optional")
		is := map[string]bool{"": false, "time": value == nil}[kind]
		switch value.(type) {
		case string:
			is = kind == "string" || kind == "time"
		case float64:
			is = kind == "integer"
		case bool:
			is = kind == "boolean"
		case []any:
			is = kind == "array"
		case map[string]any:
			is = kind == "object"
		}
		if !is {
			t.Errorf("%s: the example has %q = %v, and the command prints %q (optional: %v)", where, name, value, kind, optional)
		}
	}
	for name, kind := range fields {
		if _, ok := object[name]; !ok && !strings.HasSuffix(kind, ", optional") {
			t.Errorf("%s: the example lacks %q", where, name)
		}
	}
	for name, inner := range objects {
		all, _ := object[name].([]any)
		if one, ok := object[name].(map[string]any); ok {
			all = []any{one}
		}
		for _, one := range all {
			checkExample(t, where+" "+name, one.(map[string]any), inner)
		}
	}
}

// checkRows compares the lists of a section with the fields of its type and of the objects in it.
func checkRows(t *testing.T, where, text string, of reflect.Type) {
	t.Helper()
	want := map[string]bool{} // such as "`note` string"
	var collect func(of reflect.Type)
	collect = func(of reflect.Type) {
		fields, objects := jsonFields(of)
		for name, kind := range fields {
			want["`"+name+"` "+kind] = true
		}
		for inner := range maps.Values(objects) {
			collect(inner)
		}
	}
	collect(of)
	got := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^- ([^(\n]+) \(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		names, kinds := strings.Split(row[1], ", "), strings.Split(row[2], ", ")
		for i, name := range names {
			kind := row[2]
			if len(names) > 1 && len(names) == len(kinds) {
				kind = kinds[i]
			}
			got[name+" "+kind] = true
			if !want[name+" "+kind] {
				t.Errorf("%s: the page has %s %s, and no command prints that", where, name, kind)
			}
		}
	}
	for field := range want {
		name, _, _ := strings.Cut(field, " ")
		if len(got) > 0 && !got[field] && !strings.Contains(text, name) {
			t.Errorf("%s: the page lacks %s", where, field)
		}
	}
}

// TestExitCodesPage: the codes are a contract as well, and the runbook has a section for each of them.
func TestExitCodesPage(t *testing.T) {
	t.Parallel()
	contract := map[int]int{
		exitNotHeld: 1, ExitUsage: 64, exitCut: 65, ExitUnavailable: 69, ExitBroken: 70, exitStart: 71, ExitOutput: 74, exitBusy: 75,
		exitLost: 76, ExitConfig: 78, exitCapped: 124, supervise.NotExecutable: 126, supervise.NotFound: 127, exitSignal: 128,
	}
	source, err := os.ReadFile("exit.go")
	must(t, err)
	if n := 2 + len(regexp.MustCompile(`(?m)^\t[eE]xit\w+ += `).FindAll(source, -1)); n != len(contract) {
		t.Errorf("exit.go has %d codes with two of supervise, and this test %d", n, len(contract))
	}
	want := []int{0}
	for _, code := range slices.Sorted(maps.Keys(contract)) {
		if is := contract[code]; code != is {
			t.Errorf("exit code %d is now %d: codes do not change, see docs/stability.md", is, code)
		}
		if code != supervise.NotFound { // it stands with 126
			want = append(want, code)
		}
	}
	runbook, err := os.ReadFile("../../../docs/operations.md")
	must(t, err)
	var got []int
	for _, m := range regexp.MustCompile(`(?m)^## Exit (\d+)$`).FindAllStringSubmatch(string(runbook), -1) {
		code, _ := strconv.Atoi(m[1])
		got = append(got, code)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the runbook has the codes %v, want %v", got, want)
	}
}
