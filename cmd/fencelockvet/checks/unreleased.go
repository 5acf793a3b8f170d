package checks

import (
	"fmt"
	"go/ast"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// Unreleased reports locks that are not released on every path.
var Unreleased = &analysis.Analyzer{
	Name: "lockunreleased",
	Doc: `report locks that are not released

Acquire, TryAcquire, AcquireAll and TryAcquireAll, also of a semaphore, and Adopt return a lock that
the caller must release. A lock that is forgotten is renewed until the process ends: nobody else
gets it. The check reports a lock that is dropped, never released, or not released before a return.
A lock that is detached, returned, stored, sent, captured by a function, or passed to one counts as
released.

Fix: write "defer lock.Release()" right after the check of the error, or use Do.`,
	Requires: []*analysis.Analyzer{ctrlflow.Analyzer},
	Run:      runUnreleased,
}

func runUnreleased(pass *analysis.Pass) (any, error) {
	for _, file := range files(pass) {
		acquisitions(pass, file, func(a *acquisition) { a.reportLeak(pass) }, func(name string, call *ast.CallExpr) {
			pass.ReportRangef(call, "the lock of %s is dropped, so it cannot be released: store it and release it, or use Do", name)
		})
	}
	return nil, nil
}

// reportLeak reports the acquisition if a path returns without a release.
func (a *acquisition) reportLeak(pass *analysis.Pass) {
	if a.capturedEarlier() {
		return
	}
	if !a.everReleased() {
		if !a.ends() {
			return // it is held until the process ends, as a lock of the whole process
		}
		pass.ReportRangef(a.call, "the lock of %s is never released: write defer %s.Release() after the check of the error",
			a.name, a.lock.Name())
		return
	}
	var leak *ast.ReturnStmt
	a.held(
		func(n ast.Node) bool { return leak == nil && a.useIn(n) == unused },
		func(*cfg.Block) bool { return leak == nil },
		func(ret *ast.ReturnStmt) { leak = ret },
	)
	if leak == nil {
		return
	}
	where := ""
	if leak.Return.IsValid() && leak.Pos() < a.body.Rbrace {
		where = fmt.Sprintf(" (line %d returns without a release)", pass.Fset.Position(leak.Pos()).Line)
	}
	pass.ReportRangef(a.call, "the lock of %s is not released on every path: write defer %s.Release() after the check of the error%s",
		a.name, a.lock.Name(), where)
}

// capturedEarlier reports whether a function literal before the acquisition uses the variable of the
// lock, such as one in a defer statement. It may release the lock.
func (a *acquisition) capturedEarlier() (is bool) {
	ast.Inspect(a.body, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		is = is || ok && lit.Pos() < a.stmt.Pos() && mentions(a.info, lit, a.lock)
		return !is
	})
	return is
}

// ends reports whether the function can end, or acquire the lock again, after the acquisition.
func (a *acquisition) ends() (does bool) {
	a.held(
		func(n ast.Node) bool {
			does = does || n == a.stmt
			return !does
		},
		func(*cfg.Block) bool { return !does },
		func(*ast.ReturnStmt) { does = true },
	)
	return does || a.unclear
}

// everReleased reports whether the function releases the lock anywhere, or hands it on.
func (a *acquisition) everReleased() (ever bool) {
	ast.PreorderStack(a.body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			ever = ever || mentions(a.info, n, a.lock)
			return false
		case *ast.Ident:
			ever = ever || a.info.ObjectOf(n) == a.lock && a.useAs(n, stack) == released
		}
		return true
	})
	return ever
}
