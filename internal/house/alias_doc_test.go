package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"testing"

	"github.com/fencelock/fencelock"
)

// TestAliasesShowTheirFields: go doc shows nothing of what an alias stands for, so the
// comment has to.
func TestAliasesShowTheirFields(t *testing.T) {
	docs := map[string]string{}
	for _, file := range []string{"errors.go", "status.go", "records.go"} {
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
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			if !field.Anonymous && !regexp.MustCompile(`(?m)\b`+field.Name+`\b`).MatchString(docs[name]) {
				t.Errorf("the comment of %s does not show %s %v", name, field.Name, field.Type)
			}
		}
	}
}
