// Package checks has the analyzers of the command fencelockvet, for programs that run analyzers of
// their own choice.
//
// The analyzers report what is almost certainly a mistake and are silent where in doubt. They skip
// test files and files that import package testing, which often misuse a lock on purpose.
package checks

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// All returns the analyzers.
func All() []*analysis.Analyzer {
	return []*analysis.Analyzer{Unreleased, OuterCtx, Reentry, IgnoredErr, TimeoutHandler, TokenUnused}
}

// library is the import path of fencelock.
const library = "github.com/fencelock/fencelock"

// function describes a function of the library. An argument's index is -1 if there is none.
type function struct {
	callback int  // the argument that is a function with a context of its own
	ctx      int  // the context from which that one is derived
	name     int  // the argument with the name of the lock or, for several, the first of them
	several  bool // whether the lock has several names
	lock     bool // whether the first result is a lock that the caller must release
	try      bool // whether it does not wait for the lock
	work     bool // whether it holds one exclusive lock with a fencing token while the callback runs
}

// functions are those that the analyzers know, by their names without the path of the library.
var functions = map[string]function{
	"Locker.Do":                   {callback: 2, name: 1, work: true},
	"Locker.TryDo":                {callback: 2, name: 1, work: true, try: true},
	"Locker.DoAll":                {callback: 2, name: 1, several: true, work: true},
	"Locker.TryDoAll":             {callback: 2, name: 1, several: true, work: true, try: true},
	"Locker.Acquire":              {callback: -1, name: 1, lock: true},
	"Locker.TryAcquire":           {callback: -1, name: 1, lock: true, try: true},
	"Locker.AcquireAll":           {callback: -1, name: 1, several: true, lock: true},
	"Locker.TryAcquireAll":        {callback: -1, name: 1, several: true, lock: true, try: true},
	"Locker.Adopt":                {callback: -1, name: -1, lock: true},
	"semaphore.Semaphore.Do":      {callback: 2, name: -1},
	"semaphore.Semaphore.TryDo":   {callback: 2, name: -1, try: true},
	"semaphore.Semaphore.Acquire": {callback: -1, name: -1, lock: true},
	"semaphore.Semaphore.TryAcquire": {
		callback: -1, name: -1, lock: true, try: true,
	},
	"election.Run":                   {callback: 3, name: -1, work: true},
	"election.Candidate.Run":         {callback: 1, name: -1, work: true},
	"cron.Job.Tick":                  {callback: 2, name: -1, work: true},
	"cron.Job.Now":                   {callback: 1, name: -1, work: true},
	"cron.Job.Run":                   {callback: 2, name: -1, work: true},
	"cron/schedulers/robfigcron.Add": {callback: 4, name: -1},
	"idempotent.Do":                  {callback: 3, name: -1},
}

// errMethods are methods whose only result is an error that says whether a lock is still held.
var errMethods = map[string]bool{
	"Lock.Err": true, "LockSet.Err": true, "election.Term.Err": true,
}

// readers are the methods of locks that do not release them.
var readers = map[string]bool{
	"Lock.Context": true, "Lock.ContextWith": true, "Lock.Deadline": true, "Lock.Err": true,
	"Lock.Floor": true, "Lock.Name": true, "Lock.Owner": true, "Lock.SetMaxHold": true, "Lock.Token": true,
	"LockSet.Context": true, "LockSet.Err": true,
}

// nameOf returns the name of a function or method of the library, such as "Locker.Do", or "".
func nameOf(info *types.Info, call *ast.CallExpr) string {
	fn, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || fn.Pkg() == nil {
		return ""
	}
	pkg, ok := strings.CutPrefix(fn.Pkg().Path(), library)
	if !ok || pkg != "" && pkg[0] != '/' {
		return ""
	}
	var parts []string
	if pkg != "" {
		parts = append(parts, pkg[1:])
	}
	if recv := fn.Signature().Recv(); recv != nil {
		of := recv.Type()
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		named, ok := types.Unalias(of).(*types.Named)
		if !ok {
			return ""
		}
		parts = append(parts, named.Obj().Name())
	}
	return strings.Join(append(parts, fn.Name()), ".")
}

// known returns the function that is called, if the analyzers know it.
func known(info *types.Info, call *ast.CallExpr) (name string, f function, ok bool) {
	name = nameOf(info, call)
	f, ok = functions[name]
	if f.callback >= len(call.Args) || f.name >= len(call.Args) {
		return "", f, false
	}
	return name, f, ok
}

// relevant reports whether the package imports the library or is part of it.
func relevant(pkg *types.Package) bool {
	if pkg.Path() == library {
		return true
	}
	for _, imported := range pkg.Imports() {
		if imported.Path() == library || strings.HasPrefix(imported.Path(), library+"/") {
			return true
		}
	}
	return false
}

// files returns the files to check: none if the package has nothing to do with the library, and no
// files of tests.
func files(pass *analysis.Pass) (all []*ast.File) {
	if !relevant(pass.Pkg) {
		return nil
	}
	for _, f := range pass.Files {
		test := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		if !test && !strings.HasSuffix(pass.Fset.Position(f.FileStart).Filename, "_test.go") {
			all = append(all, f)
		}
	}
	return all
}

// callback returns the function literal that a call of the library is given, and its parameter for
// the context. The parameter is nil if it has no name or is _.
func callback(info *types.Info, call *ast.CallExpr) (lit *ast.FuncLit, param *types.Var) {
	_, f, ok := known(info, call)
	if !ok || f.callback < 0 {
		return nil, nil
	}
	lit, ok = ast.Unparen(call.Args[f.callback]).(*ast.FuncLit)
	if !ok {
		return nil, nil
	}
	if params := lit.Type.Params.List; len(params) > 0 && len(params[0].Names) > 0 {
		param, _ = info.Defs[params[0].Names[0]].(*types.Var)
	}
	if param != nil && param.Name() == "_" {
		param = nil
	}
	return lit, param
}

// variable returns the variable that an expression names, or nil.
func variable(info *types.Info, e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	v, _ := info.ObjectOf(id).(*types.Var)
	return v
}

// mentions reports whether the code in n uses v.
func mentions(info *types.Info, n ast.Node, v *types.Var) (found bool) {
	if v == nil || n == nil {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && info.ObjectOf(id) == v {
			found = true
		}
		return !found
	})
	return found
}

// isContext reports whether t is context.Context.
func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}

// isError reports whether t is the type error.
func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

// writes are the values that each variable of a package gets.
type writes map[*types.Var][]ast.Expr

// collectWrites finds them. A value that is not one expression is nil: of a range loop, of an
// assignment of several values, or one that is written through a pointer.
func collectWrites(pass *analysis.Pass) writes {
	w := writes{}
	for _, file := range pass.Files {
		w.collect(pass.TypesInfo, file)
	}
	return w
}

func (w writes) collect(info *types.Info, file *ast.File) {
	add := func(target, value ast.Expr) {
		if v := variable(info, target); v != nil {
			w[v] = append(w[v], value)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, target := range n.Lhs {
				switch {
				case len(n.Lhs) == len(n.Rhs):
					add(target, n.Rhs[i])
				case i == 0:
					add(target, n.Rhs[0]) // a context and its cancel function, or a lock and its error
				default:
					add(target, nil)
				}
			}
		case *ast.ValueSpec:
			for i, target := range n.Names {
				if len(n.Names) == len(n.Values) || len(n.Values) == 1 && i == 0 {
					add(target, n.Values[i])
				}
			}
		case *ast.IncDecStmt:
			add(n.X, nil)
		case *ast.RangeStmt:
			if n.Key != nil {
				add(n.Key, nil)
			}
			if n.Value != nil {
				add(n.Value, nil)
			}
		case *ast.UnaryExpr:
			if n.Op.String() == "&" {
				add(n.X, nil)
				add(n.X, nil) // as good as changed
			}
		}
		return true
	})
}

// unchanged reports whether v has one value as long as it exists: it is local and is written at
// most once, or is a parameter that is never written.
func (w writes) unchanged(v *types.Var) bool {
	if v.Pkg() == nil || v.IsField() || v.Parent() == v.Pkg().Scope() {
		return false
	}
	if v.Kind() == types.ParamVar || v.Kind() == types.RecvVar {
		return len(w[v]) == 0
	}
	return len(w[v]) <= 1
}
