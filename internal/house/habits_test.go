package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// habit is an entry of testdata/habits.txt.
type habit struct {
	pattern         *regexp.Regexp
	plain, why, bad string
}

// readHabits reads the list.
func readHabits(t *testing.T) (all []habit) {
	t.Helper()
	field := regexp.MustCompile(`(?m)^(\w+): (.*)$`)
	for entry := range strings.SplitSeq(readText(t, "internal/house/testdata/habits.txt"), "\n\n") {
		of := map[string]string{}
		for _, m := range field.FindAllStringSubmatch(entry, -1) {
			if m[1] != "pattern" || of["pattern"] == "" {
				of[m[1]] = m[2]
			}
		}
		if of["pattern"] == "" {
			continue // the comment at the top
		}
		pattern, err := habitPattern(of["pattern"])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, habit{pattern, of["plain"], of["why"], of["bad"]})
	}
	return all
}

func habitPattern(text string) (*regexp.Regexp, error) {
	return regexp.Compile("(?mi)" + strings.ReplaceAll(text, " ", `(?:[ \t]+|[ \t]*\n[ \t]*)`))
}

// checkHabits says where a page, or the doc comments of a file, have a habit.
func checkHabits(p page, habits []habit) (faults []string) {
	for _, h := range habits {
		for _, at := range h.pattern.FindAllStringIndex(p.prose, -1) {
			found := strings.Join(strings.Fields(p.prose[at[0]:at[1]]), " ")
			faults = append(faults, fmt.Sprintf("%s:%d: %q: %s (%s)", p.name, p.line(at[0]), found, h.plain, h.why))
		}
	}
	return faults
}

// linkTarget is the address of a link, which is not prose.
var linkTarget = regexp.MustCompile(`\]\([^()\s]+\)|(?m)^\[[^\]]+\]: \S+$`)

// prosePage is a page whose links are left out, too.
func prosePage(name, text string) page {
	p := newPage(name, text)
	p.prose = linkTarget.ReplaceAllStringFunc(p.prose, func(s string) string { return strings.Repeat("_", len(s)) })
	return p
}

// docPages returns the doc comments of a file as pages, without the code in them.
func docPages(name string, fset *token.FileSet, file *ast.File) (all []page) {
	for _, group := range docComments(file) {
		p := page{name: name, above: fset.Position(group.Pos()).Line - 1}
		for _, c := range group.List {
			line := strings.Replace(c.Text, "//", "  ", 1)
			p.text += line + "\n"
			if strings.HasPrefix(c.Text, "//\t") || strings.HasPrefix(c.Text, "//  ") {
				line = ""
			}
			p.prose += line + strings.Repeat(" ", len(c.Text)-len(line)) + "\n"
		}
		all = append(all, p)
	}
	return all
}

// docComments returns the comments that go doc shows: of the package, of declarations, fields
// and methods.
func docComments(file *ast.File) (all []*ast.CommentGroup) {
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				all = append(all, g)
			}
		}
	}
	add(file.Doc)
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			add(decl.Doc)
		case *ast.GenDecl:
			add(decl.Doc)
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					add(n.Doc, n.Comment)
				case *ast.ValueSpec:
					add(n.Doc, n.Comment)
				case *ast.Field:
					add(n.Doc, n.Comment)
				case *ast.FuncLit:
					return false
				}
				return true
			})
		}
	}
	return all
}

// TestHabits keeps the worst habits of writing out of the pages and the doc comments.
func TestHabits(t *testing.T) {
	habits := readHabits(t)
	for _, name := range documents(t) {
		for _, fault := range checkHabits(prosePage(name, readText(t, name)), habits) {
			t.Error(fault)
		}
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, p := range docPages(s.path, s.fset, s.file) {
			for _, fault := range checkHabits(p, habits) {
				t.Error(fault)
			}
		}
	}
}

// TestHabitsRefuse proves that each pattern finds its bad sentence, in a page and in a doc
// comment, across lines, and that code is left alone.
func TestHabitsRefuse(t *testing.T) {
	habits := readHabits(t)
	if n := len(habits); n < 10 || n > 25 {
		t.Errorf("%d habits, want 10 to 25: a longer list is not kept in mind", n)
	}
	for i, h := range habits {
		if h.plain == "" || h.why == "" || h.bad == "" {
			t.Errorf("habit %d, %v: lacks its plain form, its reason or its bad sentence", i+1, h.pattern)
		}
		broken := strings.ReplaceAll(h.bad, " ", "\n")
		for what, text := range map[string]string{"as it is": h.bad, "over lines": broken, "in a list": "- " + h.bad} {
			if len(checkHabits(prosePage("page.md", text), habits[i:i+1])) == 0 {
				t.Errorf("%q is not found %s", h.bad, what)
			}
		}
		if faults := checkHabits(prosePage("page.md", "```\n"+h.bad+"\n```\n`"+h.bad+"`\n"), habits); len(faults) > 0 {
			t.Errorf("found in code: %q", faults)
		}
	}
	const text = "// Package p\n// belongs\n// into x.\npackage p\n\n// T is of before, é.\ntype T struct {\n\tA int // anew\n}\n\n" +
		"// F:\n//\n//\tanew\nfunc F() {\n\t// anew\n}\n"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, p := range docPages("p.go", fset, file) {
		faults = append(faults, checkHabits(p, habits)...)
	}
	if len(faults) != 3 {
		t.Errorf("%q in a file, want 3", faults)
	}
}
