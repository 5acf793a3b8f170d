package checks

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// Reentry reports acquisitions of a name that the same code holds already.
var Reentry = &analysis.Analyzer{
	Name: "lockreentry",
	Doc: `report acquisitions of a name that is held already

Locks are not re-entrant: a second acquisition of the same name waits for the first one to end, so
Do and Acquire block until their context or wait limit ends, and TryDo and TryAcquire always fail.
The check reports this inside the function that Do is given, and between Acquire and Release, for
the same Locker and the same constant name or unchanged variable.

Fix: move the inner code out of the lock, or call a function that expects the lock to be held.`,
	Requires: []*analysis.Analyzer{ctrlflow.Analyzer},
	Run:      runReentry,
}

func runReentry(pass *analysis.Pass) (any, error) {
	all := files(pass)
	if len(all) == 0 {
		return nil, nil
	}
	w := collectWrites(pass)
	shared := sharedFields(pass.TypesInfo, w, pass.Files)
	for _, file := range all {
		r := reentry{pass: pass, w: w, shared: shared, seen: map[*ast.CallExpr]bool{}}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if lit, _ := callback(pass.TypesInfo, call); lit != nil {
					if locks := r.locks(call); len(locks) > 0 {
						r.check(lit.Body, locks)
					}
				}
			}
			return true
		})
		acquisitions(pass, file, r.whileHeld, func(string, *ast.CallExpr) {})
	}
	return nil, nil
}

type reentry struct {
	pass   *analysis.Pass
	w      writes
	shared map[*types.Var]bool // fields with Lockers of shared locks
	seen   map[*ast.CallExpr]bool
}

// named is a name on a Locker, as far as the code shows it.
type named struct {
	locker, name string
	text         string       // the name, for people
	vars         []*types.Var // the variables on which it depends
}

// locks returns what a call of a Locker acquires. It is empty if the code does not show it.
func (r reentry) locks(call *ast.CallExpr) (all []named) {
	_, f, ok := known(r.pass.TypesInfo, call)
	sel, isMethod := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || f.name < 0 || !isMethod {
		return nil
	}
	var of named
	if !r.locker(sel.X, &of) {
		return nil
	}
	exprs := call.Args[f.name:]
	if f.callback >= 0 {
		exprs = call.Args[f.name : f.name+1]
	}
	if f.several && (f.callback >= 0 || call.Ellipsis.IsValid()) {
		list, ok := ast.Unparen(call.Args[f.name]).(*ast.CompositeLit)
		if !ok {
			return nil
		}
		exprs = list.Elts
	}
	for _, e := range exprs {
		one := of
		one.vars = slices.Clone(of.vars)
		one.text = types.ExprString(e)
		if r.value(e, &one) {
			all = append(all, one)
		}
	}
	return all
}

// locker adds the identity of a Locker: a variable and fields of it. Lockers from With are the same
// Locker, since they share its engine, except that shared locks do not exclude each other.
func (r reentry) locker(e ast.Expr, to *named) bool {
	info := r.pass.TypesInfo
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v := variable(info, e)
		if v == nil {
			return false
		}
		global := v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
		if !global && !r.w.unchanged(v) || global && len(r.w[v]) > 1 {
			return false
		}
		if len(r.w[v]) == 1 && r.w[v][0] != nil {
			if call, ok := ast.Unparen(r.w[v][0]).(*ast.CallExpr); ok && derives(info, call) {
				return r.locker(call, to)
			}
		}
		to.vars = append(to.vars, v)
		to.locker += identity(r.pass, v)
		return true
	case *ast.SelectorExpr:
		field, ok := info.Uses[e.Sel].(*types.Var)
		if !ok {
			return false
		}
		if !field.IsField() { // a variable of another package
			to.locker += identity(r.pass, field)
			return true
		}
		if r.shared[field] || !r.locker(e.X, to) {
			return false
		}
		to.locker += "." + e.Sel.Name
		return true
	case *ast.CallExpr:
		if derives(info, e) && len(e.Args) == 1 && exclusive(e.Args[0]) {
			return r.locker(ast.Unparen(e.Fun).(*ast.SelectorExpr).X, to)
		}
	}
	return false
}

// sharedFields returns the fields that get a Locker whose locks may be shared.
func sharedFields(info *types.Info, w writes, files []*ast.File) map[*types.Var]bool {
	shared := map[*types.Var]bool{}
	add := func(field types.Object, value ast.Expr) {
		if v, ok := field.(*types.Var); ok && mayShare(info, w, value) {
			shared[v] = true
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				of := info.TypeOf(n).Underlying()
				if pointer, ok := of.(*types.Pointer); ok {
					of = pointer.Elem().Underlying() // &T left out in a list
				}
				fields, ok := of.(*types.Struct)
				for i, e := range n.Elts {
					if pair, keyed := e.(*ast.KeyValueExpr); ok && !keyed {
						add(fields.Field(i), e)
					} else if key, named := keyOf(pair); ok && named {
						add(info.Uses[key], pair.Value)
					}
				}
			case *ast.AssignStmt:
				for i, target := range n.Lhs {
					if sel, ok := target.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
						add(info.Uses[sel.Sel], n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	return shared
}

// keyOf returns the name of the field of an element of a composite literal.
func keyOf(pair *ast.KeyValueExpr) (*ast.Ident, bool) {
	if pair == nil {
		return nil, false
	}
	key, ok := pair.Key.(*ast.Ident)
	return key, ok
}

// mayShare reports whether a value, or one that its variable gets, is a Locker of With whose locks
// may be shared.
func mayShare(info *types.Info, w writes, value ast.Expr) bool {
	if call, ok := ast.Unparen(value).(*ast.CallExpr); ok {
		return derives(info, call) && !exclusive(call.Args[0])
	}
	v := variable(info, value)
	return v != nil && slices.ContainsFunc(w[v], func(e ast.Expr) bool {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		return ok && derives(info, call) && !exclusive(call.Args[0])
	})
}

func identity(pass *analysis.Pass, v *types.Var) string {
	return v.Name() + "@" + pass.Fset.Position(v.Pos()).String()
}

func derives(info *types.Info, call *ast.CallExpr) bool {
	name := nameOf(info, call)
	return name == "Locker.With" || name == "Locker.WithOnly"
}

// exclusive reports whether options certainly do not ask for a shared lock.
func exclusive(options ast.Expr) bool {
	list, ok := ast.Unparen(options).(*ast.CompositeLit)
	if !ok {
		return false
	}
	return !slices.ContainsFunc(list.Elts, func(e ast.Expr) bool {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		id, ok := field.Key.(*ast.Ident)
		return !ok || id.Name == "Shared"
	})
}

// value adds the identity of a name: a constant, a variable that does not change, or these joined
// with +.
func (r reentry) value(e ast.Expr, to *named) bool {
	e = ast.Unparen(e)
	if v := r.pass.TypesInfo.Types[e].Value; v != nil && v.Kind() == constant.String {
		to.name += v.ExactString()
		return true
	}
	if v := variable(r.pass.TypesInfo, e); v != nil && r.w.unchanged(v) {
		to.name += identity(r.pass, v)
		to.vars = append(to.vars, v)
		return true
	}
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return r.value(sum.X, to) && r.value(sum.Y, to)
	}
	return false
}

// check reports acquisitions of held locks in code that runs while they are held.
func (r reentry) check(code ast.Node, held []named) {
	ast.Inspect(code, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false // it can wait until the lock is released
		case *ast.FuncLit:
			return false // nobody knows when it runs
		case *ast.CallExpr:
			r.checkCall(n, held)
			if lit, _ := callback(r.pass.TypesInfo, n); lit != nil {
				r.check(lit.Body, held)
			}
			if lit, ok := ast.Unparen(n.Fun).(*ast.FuncLit); ok {
				r.check(lit.Body, held)
			}
		}
		return true
	})
}

// checkCall reports a call that acquires a lock that is held.
func (r reentry) checkCall(call *ast.CallExpr, held []named) {
	if r.seen[call] {
		return
	}
	for _, l := range r.locks(call) {
		if slices.ContainsFunc(held, func(h named) bool { return h.locker == l.locker && h.name == l.name }) {
			r.seen[call] = true
			name, f, _ := known(r.pass.TypesInfo, call)
			effect := "blocks until its context or wait limit ends"
			if f.try {
				effect = "always fails"
			}
			r.pass.ReportRangef(call, "%s is held here already: locks are not re-entrant, so this %s %s", l.text, name, effect)
			return
		}
	}
}

// whileHeld reports acquisitions of the same lock before it is released.
func (r reentry) whileHeld(a *acquisition) {
	locks := r.locks(a.call)
	if len(locks) == 0 {
		return
	}
	var vars []*types.Var
	for _, l := range locks {
		vars = append(vars, l.vars...)
	}
	a.held(
		func(n ast.Node) bool {
			if redefines(a.info, n, vars) {
				return false
			}
			use := a.useIn(n)
			if use == unused || use == deferred || use == replaced {
				if _, isDefer := n.(*ast.DeferStmt); !isDefer {
					r.check(n, locks)
				}
			}
			return use == unused || use == deferred
		},
		func(b *cfg.Block) bool {
			loop, ok := b.Stmt.(*ast.RangeStmt)
			if !ok || b.Kind != cfg.KindRangeLoop {
				return true
			}
			return !slices.ContainsFunc(vars, func(v *types.Var) bool {
				return loop.Key != nil && variable(a.info, loop.Key) == v || loop.Value != nil && variable(a.info, loop.Value) == v
			})
		},
		func(*ast.ReturnStmt) {},
	)
}

// redefines reports whether n gives one of the variables a value.
func redefines(info *types.Info, n ast.Node, vars []*types.Var) bool {
	assign, ok := n.(*ast.AssignStmt)
	return ok && slices.ContainsFunc(assign.Lhs, func(e ast.Expr) bool {
		v := variable(info, e)
		return v != nil && slices.Contains(vars, v)
	})
}
