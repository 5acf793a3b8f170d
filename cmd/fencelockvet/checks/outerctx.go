package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// OuterCtx reports calls under a lock that use a context which does not end with the lock.
var OuterCtx = &analysis.Analyzer{
	Name: "lockouterctx",
	Doc: `report calls under a lock with the context from outside

Do and its relatives give their function a context of its own. It ends when the lock is lost, and it
carries the fencing token. The context that was given to Do does neither: a call that uses it in the
function continues after another holder has the lock. The check also sees the context from which the
one given to Do was derived. It is silent where the outer context can be intended: in deferred calls, go
statements, log messages, context.WithoutCancel, functions that only read a value of the context, and
code that runs after an error or after the end of the function's context.

Fix: use the context that the function is given. The suggested fix does that.`,
	Run: runOuterCtx,
}

func runOuterCtx(pass *analysis.Pass) (any, error) {
	all := files(pass)
	if len(all) == 0 {
		return nil, nil
	}
	w := collectWrites(pass)
	for _, file := range all {
		enclosing := map[*types.Var]*outerCtx{}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, f, _ := known(pass.TypesInfo, call)
			if lit, param := callback(pass.TypesInfo, call); lit != nil {
				o := &outerCtx{
					pass: pass, function: name, lit: lit, param: param, enclosing: enclosing,
					outer: map[*types.Var]bool{}, of: map[*types.Var]bool{},
				}
				o.collect(w, call.Args[f.ctx])
				o.check(lit.Body)
				if param != nil {
					enclosing[param] = o
				}
			}
			return true
		})
	}
	return nil, nil
}

// outerCtx checks the function literal of one call.
type outerCtx struct {
	pass      *analysis.Pass
	function  string
	lit       *ast.FuncLit
	param     *types.Var               // the context of the literal; nil if it has no name
	outer     map[*types.Var]bool      // the contexts from outside
	of        map[*types.Var]bool      // variables, such as a request, whose Context method returns one
	enclosing map[*types.Var]*outerCtx // the literals around this one, by their contexts
}

// collect adds the contexts in an expression, and those from which they were derived.
func (o *outerCtx) collect(w writes, e ast.Expr) {
	if e == nil {
		return
	}
	info := o.pass.TypesInfo
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if v := contextOf(info, n); v != nil {
				o.of[v] = true
			}
		case *ast.Ident:
			v, ok := info.Uses[n].(*types.Var)
			if !ok || v.IsField() || !isContext(v.Type()) || o.outer[v] {
				return true
			}
			o.outer[v] = true
			if around := o.enclosing[v]; around != nil {
				maps.Copy(o.outer, around.outer)
				maps.Copy(o.of, around.of)
			}
			for _, value := range w[v] {
				o.collect(w, value)
			}
		}
		return true
	})
}

// contextOf returns x for a call x.Context().
func contextOf(info *types.Info, call *ast.CallExpr) *types.Var {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Context" || len(call.Args) != 0 || !isContext(info.TypeOf(call)) {
		return nil
	}
	return variable(info, sel.X)
}

// check reports the calls in the code below n that are given an outer context.
func (o *outerCtx) check(n ast.Node) {
	info := o.pass.TypesInfo
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt, *ast.GoStmt:
			return false
		case *ast.IfStmt:
			if !failure(info, n.Cond) {
				return true
			}
			o.check(n.Cond)
			if n.Init != nil {
				o.check(n.Init)
			}
			if n.Else != nil {
				o.check(n.Else)
			}
			return false
		case *ast.CaseClause:
			return !slices.ContainsFunc(n.List, func(e ast.Expr) bool { return failure(info, e) })
		case *ast.CommClause:
			return n.Comm == nil || !o.ended(n.Comm)
		case *ast.CallExpr:
			if meant(info, n) || reads(info, n) {
				return false
			}
			for i, arg := range n.Args {
				if !o.detaches(n, i) {
					o.checkArg(ast.Unparen(arg))
				}
			}
			// The function of a nested call is checked with that call.
			if nested, _ := callback(info, n); nested != nil {
				for _, arg := range n.Args {
					if ast.Unparen(arg) != nested {
						o.check(arg)
					}
				}
				return false
			}
		}
		return true
	})
}

// checkArg reports an argument that is an outer context.
func (o *outerCtx) checkArg(arg ast.Expr) {
	if v := variable(o.pass.TypesInfo, arg); v != nil && o.outer[v] && !within(v, o.lit) {
		o.report(arg, v.Name())
	}
	if c, ok := arg.(*ast.CallExpr); ok {
		if v := contextOf(o.pass.TypesInfo, c); v != nil && o.of[v] && !within(v, o.lit) {
			o.report(arg, types.ExprString(arg))
		}
	}
}

// meant reports whether a call can intend to use the outer context.
func meant(info *types.Info, call *ast.CallExpr) bool {
	if nameOf(info, call) == "Lock.ContextWith" {
		return true
	}
	fn, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || fn.Pkg() == nil {
		return false
	}
	switch fn.Pkg().Path() {
	case "log/slog":
		return true
	case "context":
		return fn.Name() == "WithoutCancel" || fn.Name() == "AfterFunc" || fn.Name() == "Cause"
	}
	return false
}

// failure reports whether a condition says that something failed, perhaps because the lock is lost.
// The context of the function may have ended then, so the outer one can be intended.
func failure(info *types.Info, cond ast.Expr) (is bool) {
	if equal, ok := ast.Unparen(cond).(*ast.BinaryExpr); ok && equal.Op == token.EQL {
		return false
	}
	ast.Inspect(cond, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		is = is || ok && isError(info.TypeOf(e))
		return !is
	})
	return is
}

// ended reports whether a case of a select statement receives from Done of the function's context.
func (o *outerCtx) ended(comm ast.Stmt) (is bool) {
	ast.Inspect(comm, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		is = is || ok && sel.Sel.Name == "Done" && o.param != nil && variable(o.pass.TypesInfo, sel.X) == o.param
		return !is
	})
	return is
}

// reads reports whether a call seems to read only a value of its context: a function with no other
// argument that returns something, but no error and no context.
func reads(info *types.Info, call *ast.CallExpr) bool {
	fn, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || fn.Signature().Recv() != nil || len(call.Args) != 1 || fn.Signature().Results().Len() == 0 {
		return false
	}
	for result := range fn.Signature().Results().Variables() {
		if isError(result.Type()) || isContext(result.Type()) {
			return false
		}
	}
	return true
}

// detaches reports whether a function of this package gives an argument to context.WithoutCancel.
func (o *outerCtx) detaches(call *ast.CallExpr, arg int) (does bool) {
	info := o.pass.TypesInfo
	fn, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok || fn.Pkg() != o.pass.Pkg || arg >= fn.Signature().Params().Len() {
		return false
	}
	param := fn.Origin().Signature().Params().At(arg)
	for _, file := range o.pass.Files {
		if param.Pos() < file.FileStart || param.Pos() >= file.FileEnd {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			inner, ok := n.(*ast.CallExpr)
			if ok && len(inner.Args) == 1 && variable(info, inner.Args[0]) == param {
				callee, ok := typeutil.Callee(info, inner).(*types.Func)
				does = does || ok && callee.FullName() == "context.WithoutCancel"
			}
			return !does
		})
	}
	return does
}

// within reports whether v is declared in the literal.
func within(v *types.Var, lit *ast.FuncLit) bool { return lit.Pos() <= v.Pos() && v.Pos() < lit.End() }

// report reports the use of an outer context at e.
func (o *outerCtx) report(e ast.Expr, text string) {
	d := analysis.Diagnostic{Pos: e.Pos(), End: e.End(), Message: text + " does not end when the lock is lost: "}
	if o.param != nil {
		name := o.param.Name()
		d.Message += "use " + name + ", the context given to the function of " + o.function
		if scope := o.pass.Pkg.Scope().Innermost(e.Pos()); scope != nil {
			if _, obj := scope.LookupParent(name, e.Pos()); obj == o.param {
				d.SuggestedFixes = replace("Use "+name, e, name)
			}
		}
	} else {
		d.Message += "name the context given to the function of " + o.function + " and use it"
		// A parameter with the name of the outer context also replaces it elsewhere in the function.
		if first := o.firstParam(); first != nil && o.uses(e) == 1 {
			d.SuggestedFixes = replace("Name the context of the function "+text, first, text)
		}
	}
	o.pass.Report(d)
}

// uses counts how often the literal uses the variable e.
func (o *outerCtx) uses(e ast.Expr) (n int) {
	v := variable(o.pass.TypesInfo, e)
	ast.Inspect(o.lit.Body, func(node ast.Node) bool {
		if id, ok := node.(*ast.Ident); ok && v != nil && o.pass.TypesInfo.Uses[id] == v {
			n++
		}
		return true
	})
	return n
}

// firstParam returns the identifier _ of the literal's context, or nil.
func (o *outerCtx) firstParam() *ast.Ident {
	if params := o.lit.Type.Params.List; len(params) > 0 && len(params[0].Names) > 0 {
		return params[0].Names[0]
	}
	return nil
}

func replace(message string, at ast.Node, text string) []analysis.SuggestedFix {
	return []analysis.SuggestedFix{{
		Message:   message,
		TextEdits: []analysis.TextEdit{{Pos: at.Pos(), End: at.End(), NewText: []byte(text)}},
	}}
}
