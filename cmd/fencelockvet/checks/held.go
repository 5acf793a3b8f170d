package checks

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

// acquisition is a statement that stores a new lock in a local variable.
type acquisition struct {
	info  *types.Info
	name  string // of the function, such as "Locker.Acquire"
	call  *ast.CallExpr
	stmt  ast.Node
	lock  *types.Var
	err   *types.Var // nil if the error is dropped
	body  *ast.BlockStmt
	graph *cfg.CFG
	// unclear says that a path was not followed, because it depends on what the analyzers do not
	// understand.
	unclear bool
}

// acquisitions calls f with each acquisition of the functions in a file, and dropped with each call
// whose lock is dropped.
func acquisitions(pass *analysis.Pass, file *ast.File, f func(*acquisition), dropped func(name string, call *ast.CallExpr)) {
	graphs := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	for c := range inspector.New([]*ast.File{file}).Root().Preorder((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		var (
			body    *ast.BlockStmt
			results *ast.FieldList
			graph   *cfg.CFG
		)
		switch n := c.Node().(type) {
		case *ast.FuncDecl:
			if n.Body == nil {
				continue
			}
			body, results, graph = n.Body, n.Type.Results, graphs.FuncDecl(n)
		case *ast.FuncLit:
			body, results, graph = n.Body, n.Type.Results, graphs.FuncLit(n)
		}
		if graph == nil {
			continue
		}
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false // has a turn of its own
			case *ast.ExprStmt:
				if name, call := acquiring(pass.TypesInfo, n.X); call != nil {
					dropped(name, call)
				}
			case *ast.AssignStmt:
				a := &acquisition{info: pass.TypesInfo, stmt: n, body: body, graph: graph}
				switch {
				case !a.assigned(n.Lhs, n.Rhs):
				case isBlank(n.Lhs[0]):
					dropped(a.name, a.call)
				case a.local(results):
					f(a)
				}
			}
			return true
		})
	}
}

// acquiring returns the call if e is one whose first result is a lock.
func acquiring(info *types.Info, e ast.Expr) (string, *ast.CallExpr) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	if name, f, ok := known(info, call); ok && f.lock {
		return name, call
	}
	return "", nil
}

// assigned reports whether the assignment stores a new lock, and notes where.
func (a *acquisition) assigned(lhs, rhs []ast.Expr) bool {
	if len(lhs) != 2 || len(rhs) != 1 {
		return false
	}
	a.name, a.call = acquiring(a.info, rhs[0])
	if a.call == nil {
		return false
	}
	a.lock, a.err = variable(a.info, lhs[0]), variable(a.info, lhs[1])
	if a.err == nil && !isBlank(lhs[1]) {
		a.lock = nil // the error is stored somewhere, so it cannot be followed
	}
	return true
}

// local reports whether the lock is in a variable of the function, other than a result.
func (a *acquisition) local(results *ast.FieldList) bool {
	if a.lock == nil || a.lock.Pos() < a.body.Pos() || a.lock.Pos() >= a.body.End() {
		return false
	}
	if results != nil && results.Pos() <= a.lock.Pos() && a.lock.Pos() < results.End() {
		return false
	}
	return true
}

// use is what a piece of code does with a lock.
type use int

const (
	unused   use = iota // nothing, or it reads the token or the like
	deferred            // it releases the lock when the function returns, or may do so
	released            // it releases the lock, or hands it on
	replaced            // it stores something else in the variable
)

// useIn returns the strongest use of the lock in n.
func (a *acquisition) useIn(n ast.Node) (strongest use) {
	if n == a.stmt {
		return replaced
	}
	if n, ok := n.(*ast.DeferStmt); ok {
		if mentions(a.info, n, a.lock) && a.useIn(n.Call) != unused {
			return deferred
		}
		return unused
	}
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if mentions(a.info, n, a.lock) {
				strongest = max(strongest, released)
			}
			return false
		case *ast.Ident:
			if a.info.ObjectOf(n) == a.lock {
				strongest = max(strongest, a.useAs(n, stack))
			}
		}
		return true
	})
	return strongest
}

// useAs returns the use of the lock by an identifier; stack has the nodes around it.
func (a *acquisition) useAs(id *ast.Ident, stack []ast.Node) use {
	around := func(i int) ast.Node {
		if i > len(stack) {
			return nil
		}
		return stack[len(stack)-i]
	}
	switch parent := around(1).(type) {
	case *ast.SelectorExpr:
		if call, ok := around(2).(*ast.CallExpr); ok && call.Fun == parent && readers[nameOf(a.info, call)] {
			return unused
		}
	case *ast.BinaryExpr:
		if parent.Op == token.EQL || parent.Op == token.NEQ {
			return unused
		}
	case *ast.AssignStmt:
		for i, target := range parent.Lhs {
			if target == id {
				return replaced
			}
			if len(parent.Lhs) == len(parent.Rhs) && parent.Rhs[i] == id && isBlank(target) {
				return unused
			}
		}
	case *ast.ValueSpec:
		for _, name := range parent.Names {
			if name == id {
				return unused // its declaration
			}
		}
	}
	return released
}

// place is a block of the graph that a path reaches.
type place struct {
	block *cfg.Block
	// fresh says whether the error is still that of the acquisition.
	fresh bool
}

// held visits the code that runs while the lock is held, in blocks from the acquisition on. visit
// returns false if the path ends for the visitor. end is called with the statements that return.
func (a *acquisition) held(visit func(n ast.Node) bool, enter func(b *cfg.Block) bool, end func(*ast.ReturnStmt)) {
	seen := map[place]bool{}
	var walk func(p place, from int)
	walk = func(p place, from int) {
		fresh := p.fresh
		for _, n := range p.block.Nodes[from:] {
			if !visit(n) {
				return
			}
			switch a.errIn(n) {
			case errReplaced:
				fresh = false
			case errCopied:
				if fresh {
					a.unclear = true // nobody knows what depends on it
					return
				}
			}
		}
		if ret := p.block.Return(); ret != nil {
			end(ret)
			return
		}
		for i, next := range p.block.Succs {
			if to := (place{next, fresh}); a.possible(p.block, i, fresh) && !seen[to] && enter(next) {
				seen[to] = true
				walk(to, 0)
			}
		}
	}
	for _, b := range a.graph.Blocks {
		for i, n := range b.Nodes {
			if n == a.stmt && b.Live {
				walk(place{b, true}, i+1)
			}
		}
	}
}

type errUse int

const (
	errUnused errUse = iota
	errCopied
	errReplaced
)

// errIn returns what a node does with the error of the acquisition.
func (a *acquisition) errIn(n ast.Node) (does errUse) {
	if a.err == nil || !mentions(a.info, n, a.err) {
		return errUnused
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, value := range n.Rhs {
			if mentions(a.info, value, a.err) {
				return errCopied
			}
		}
		for _, target := range n.Lhs {
			if variable(a.info, target) == a.err {
				return errReplaced
			}
		}
	case *ast.ValueSpec, *ast.DeclStmt, *ast.SendStmt, *ast.GoStmt:
		return errCopied
	case *ast.Ident:
		return errCopied // switch err
	}
	return errUnused
}

// condition returns the condition at the end of a block with two successors, or nil.
func condition(b *cfg.Block) ast.Expr {
	if len(b.Succs) != 2 || len(b.Nodes) == 0 || b.Kind == cfg.KindRangeLoop {
		return nil
	}
	e, _ := b.Nodes[len(b.Nodes)-1].(ast.Expr)
	return e
}

func (a *acquisition) isNil(e ast.Expr) bool { return a.info.Types[e].IsNil() }

// truth is what is known about a condition while the lock is held.
type truth int

const (
	either truth = iota
	yes
	no
	opaque // it depends on the error in a way that the analyzers do not understand
)

// possible reports whether the lock may be held in the i-th successor of b.
func (a *acquisition) possible(b *cfg.Block, i int, fresh bool) bool {
	e := condition(b)
	if e == nil {
		return true
	}
	switch a.evaluate(e, fresh) {
	case yes:
		return i == 0
	case no:
		return i == 1
	case opaque:
		a.unclear = true
		return false
	}
	return true
}

// evaluate returns what is known about a condition if the acquisition has succeeded.
func (a *acquisition) evaluate(e ast.Expr, fresh bool) truth {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return a.evaluate(e.X, fresh)
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return [...]truth{either: either, yes: no, no: yes, opaque: opaque}[a.evaluate(e.X, fresh)]
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND:
			return combine(a.evaluate(e.X, fresh), a.evaluate(e.Y, fresh), no)
		case token.LOR:
			return combine(a.evaluate(e.X, fresh), a.evaluate(e.Y, fresh), yes)
		case token.EQL:
			return a.equal(e, fresh, yes, no)
		case token.NEQ:
			return a.equal(e, fresh, no, yes)
		}
	case *ast.CallExpr:
		if fn, ok := typeutil.Callee(a.info, e).(*types.Func); ok && fn.Pkg() != nil && fn.Pkg().Path() == "errors" && fresh &&
			len(e.Args) > 0 && a.err != nil && variable(a.info, e.Args[0]) == a.err {
			return no // errors.Is or errors.As
		}
	}
	if fresh && mentions(a.info, e, a.err) {
		return opaque
	}
	return either
}

// combine returns x && y if decisive is no, and x || y if it is yes.
func combine(x, y, decisive truth) truth {
	switch {
	case x == decisive || y == decisive:
		return decisive
	case x == opaque || y == opaque:
		return opaque
	case x == either || y == either:
		return either
	}
	return x
}

// equal returns what is known about the comparison of the error, or of the lock, with a value: same
// if they are equal.
func (a *acquisition) equal(e *ast.BinaryExpr, fresh bool, same, different truth) truth {
	x, y := e.X, e.Y
	if a.isNil(x) {
		x, y = y, x
	}
	switch v := variable(a.info, x); {
	case v != nil && v == a.lock && a.isNil(y):
		return different
	case v != nil && v == a.err && fresh && a.isNil(y):
		return same
	case v != nil && v == a.err && fresh:
		return different
	case fresh && mentions(a.info, e, a.err):
		return opaque
	}
	return either
}
