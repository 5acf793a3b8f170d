package checks

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// IgnoredErr reports errors of locks that the program drops.
var IgnoredErr = &analysis.Analyzer{
	Name: "lockignorederr",
	Doc: `report dropped errors of locks

Do, TryDo, DoAll, Acquire and their relatives return an error if they did not get the lock, and Do
also if the lock was lost while the function ran. A program that drops this error believes that
the work was done, or done alone. Lock.Err does nothing but return such an error.

Fix: handle the error: ErrHeld (another holder), ErrLost (lost during the work),
ErrUnavailable (the server was unreachable).`,
	Run: runIgnoredErr,
}

func runIgnoredErr(pass *analysis.Pass) (any, error) {
	report := func(e ast.Expr, how string) {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok {
			return
		}
		name := nameOf(pass.TypesInfo, call)
		switch _, does := functions[name]; {
		case does && failsOf(pass.TypesInfo, call):
			pass.ReportRangef(call, "the error of %s is %s: it says whether the lock was acquired and kept", name, how)
		case errMethods[name]:
			pass.ReportRangef(call, "the result of %s is %s: the call has no other effect", name, how)
		}
	}
	for _, file := range files(pass) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ExprStmt:
				report(n.X, "not used")
			case *ast.GoStmt:
				report(n.Call, "lost in a go statement")
			case *ast.DeferStmt:
				report(n.Call, "lost in a defer statement")
			case *ast.AssignStmt:
				if len(n.Lhs) == len(n.Rhs) {
					for i, target := range n.Lhs {
						if isBlank(target) {
							report(n.Rhs[i], "assigned to _")
						}
					}
				} else if isBlank(n.Lhs[len(n.Lhs)-1]) {
					report(n.Rhs[0], "assigned to _")
				}
			}
			return true
		})
	}
	return nil, nil
}

// failsOf reports whether the last result of a call is an error.
func failsOf(info *types.Info, call *ast.CallExpr) bool {
	last := info.TypeOf(call)
	if tuple, ok := last.(*types.Tuple); ok && tuple.Len() > 0 {
		last = tuple.At(tuple.Len() - 1).Type()
	}
	return isError(last)
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}
