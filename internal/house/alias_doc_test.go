package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
)

// TestAliasesShowTheirFields: go doc shows nothing of what an alias stands for, so the
// comment has to.
func TestAliasesShowTheirFields(t *testing.T) {
	logFolder()
	docs := map[string]string{}
	for _, file := range []string{"errors.go", "status.go", "records.go", "engine.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.TypeSpec)
				docs[spec.Name.Name] = spec.Doc.Text() + decl.Doc.Text()
			}
		}
	}
	for name, value := range map[string]any{
		"HeldError": fencelock.HeldError{}, "Status": fencelock.Status{}, "Holder": fencelock.Holder{},
		"Waiter": fencelock.Waiter{}, "Event": fencelock.Event{}, "Record": fencelock.Record{},
		"WaitInfo": fencelock.WaitInfo{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			if !field.Anonymous && !regexp.MustCompile(`(?m)\b`+field.Name+`\b`).MatchString(docs[name]) {
				t.Errorf("the comment of %s does not show %s %v", name, field.Name, field.Type)
			}
		}
	}
}

// TestProgramsNeedNoDriver: package driver is for those who write engines. What the root and
// the recipes export names the root's aliases instead.
func TestProgramsNeedNoDriver(t *testing.T) {
	for _, s := range sources(t) {
		i := slices.IndexFunc(rooms, func(r room) bool { return r.matches(s.folder) })
		recipe := i >= 0 && slices.Contains(rooms[i].imports, ".") && !strings.HasPrefix(s.folder, "internal/") && house(s.folder) == library && !strings.HasPrefix(s.folder, "driver/")
		if s.test || s.folder != "." && !recipe {
			continue
		}
		for _, name := range driverNames(s.file) {
			t.Errorf("%s: what it exports needs driver.%s", s.path, name)
		}
	}
}

// TestDriverNames proves that the check sees them at all.
func TestDriverNames(t *testing.T) {
	const text = `package p
type Alias = driver.A
type Struct struct { Field func(driver.B); hidden driver.C }
func (s *Struct) Method() []driver.D { return driver.E() }
func (h hidden) Method() driver.F { return nil }
func Func(driver.G) { var _ driver.H }
func fn(driver.I) {}
type Interface interface { Method(driver.J) }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(driverNames(file), ""); got != "BDGJ" {
		t.Errorf("found %q", got)
	}
}

// driverNames returns the names of package driver in what a file exports, but for aliases.
func driverNames(file *ast.File) (names []string) {
	look := func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(sel.X) == "driver" {
			names = append(names, sel.Sel.Name)
		}
		return true
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type)) {
				ast.Inspect(d.Type, look)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok || spec.Assign.IsValid() || !spec.Name.IsExported() {
					continue
				}
				inspectType(spec.Type, look)
			}
		}
	}
	return names
}

// inspectType looks at a type, but not at the fields of a struct that nobody else sees.
func inspectType(typ ast.Expr, look func(ast.Node) bool) {
	st, ok := typ.(*ast.StructType)
	if !ok {
		ast.Inspect(typ, look)
		return
	}
	for _, field := range st.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			inspectType(field.Type, look)
		}
	}
}

// exportedReceiver reports whether a method belongs to an exported type.
func exportedReceiver(typ ast.Expr) bool {
	exported := false
	ast.Inspect(typ, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			exported = exported || name.IsExported()
			return false
		}
		return true
	})
	return exported
}
