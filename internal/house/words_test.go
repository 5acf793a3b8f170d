package house_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// refusedWords reads words.txt: what a folder must not declare, and the
// field's word for it.
func refusedWords(t *testing.T) map[string]map[string]string {
	t.Helper()
	raw, err := os.ReadFile("internal/house/testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	refused, folder := map[string]map[string]string{}, ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutSuffix(line, ":"); ok {
			folder, refused[name] = name, map[string]string{}
			continue
		}
		if word, instead, ok := strings.Cut(line, " "); ok && line[0] != '#' {
			refused[folder][word] = instead
		}
	}
	return refused
}

// refuseWord says what is wrong with a name that a folder declares, or nil.
func refuseWord(refused map[string]map[string]string, folder, name string) error {
	for at := folder; ; at = path.Dir(at) {
		if instead, ok := refused[at][name]; ok && (at != "." || folder == ".") {
			return fmt.Errorf("%q is not the field's word; try %q", name, instead)
		}
		if at == "." {
			return nil
		}
	}
}

// declaredNames are the functions, types, fields, constants and variables of a Go file
// that are not local to a function.
func declaredNames(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
			return false
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.FuncType:
			return false
		}
		return true
	})
	return names
}

// scriptName is what a line of Lua or SQL declares: a local variable or function, a
// member of the scripts' table, a function or a table of the schema.
var scriptName = regexp.MustCompile(`^\s*(?:local function|local|function S\.|S\.(?:\w+ = function)?|CREATE (?:OR REPLACE FUNCTION|UNLOGGED TABLE|TABLE)(?: IF NOT EXISTS)?) *(?:fencelock\.)?(\w+)`)

func TestWords(t *testing.T) {
	refused := refusedWords(t)
	for _, s := range sources(t) {
		for _, id := range declaredNames(s.file) {
			if err := refuseWord(refused, s.folder, id.Name); err != nil {
				t.Errorf("%s: %v", s.fset.Position(id.Pos()), err)
			}
		}
	}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := filepath.Ext(name); ext != ".lua" && ext != ".sql" {
			return nil
		}
		raw, err := os.ReadFile(name)
		for line := range strings.Lines(string(raw)) {
			if m := scriptName.FindStringSubmatch(line); m != nil {
				if err := refuseWord(refused, path.Dir(filepath.ToSlash(name)), m[1]); err != nil {
					t.Errorf("%s: %s: %v", name, strings.TrimSpace(line), err)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWordsRefuse proves that the check sees old words at all.
func TestWordsRefuse(t *testing.T) {
	refused := refusedWords(t)
	for _, c := range []struct {
		folder, name string
		want         bool
	}{
		{"redislock", "gatherer", true},
		{"redislock/lua", "hail", true},
		{"redislock", "batcher", false},
		{"memlock", "gatherer", false},
		{".", "manner", true},
		{"cron", "manner", false},
	} {
		if got := refuseWord(refused, c.folder, c.name) != nil; got != c.want {
			t.Errorf("%s declares %s: refused = %v, want %v", c.folder, c.name, got, c.want)
		}
	}
	for line, want := range map[string]string{
		"local function hail(x)":                              "hail",
		"  local hail = 1":                                    "hail",
		"function S.hail(after)":                              "hail",
		"CREATE OR REPLACE FUNCTION fencelock.grab(k bigint)": "grab",
	} {
		if m := scriptName.FindStringSubmatch(line); m == nil || m[1] != want {
			t.Errorf("%q declares %q, want %q", line, m, want)
		}
	}
}
