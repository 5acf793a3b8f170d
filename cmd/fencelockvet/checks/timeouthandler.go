package checks

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// TimeoutHandler reports a http.TimeoutHandler behind idempotent.Store.Handler.
var TimeoutHandler = &analysis.Analyzer{
	Name: "locktimeouthandler",
	Doc: `report a http.TimeoutHandler behind idempotent.Store.Handler

A key of idempotent.Store.Handler is free when the handler behind it returns. A TimeoutHandler returns
after its time with status 503, which is not stored, while the handler that it wraps runs on. A retry
is then handled at the same time as the first request. The check follows variables that are assigned
once, handlers that are wrapped in other calls, and the patterns of a local mux.

Fix: put the TimeoutHandler in front: http.TimeoutHandler(store.Handler(next, cfg), time, text).`,
	Run: runTimeoutHandler,
}

func runTimeoutHandler(pass *analysis.Pass) (any, error) {
	all := files(pass)
	if len(all) == 0 {
		return nil, nil
	}
	s := &timeoutSearch{info: pass.TypesInfo, writes: collectWrites(pass), routes: map[*types.Var][]ast.Expr{}}
	for _, file := range all {
		s.collectRoutes(file)
	}
	for _, file := range all {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && nameOf(pass.TypesInfo, call) == "idempotent.Store.Handler" && s.inside(call.Args[0], nil) {
				pass.ReportRangef(call, "a http.TimeoutHandler behind idempotent.Store.Handler frees the key while its handler runs on: put it in front")
			}
			return true
		})
	}
	return nil, nil
}

// timeoutSearch looks for a TimeoutHandler in the values of handlers.
type timeoutSearch struct {
	info   *types.Info
	writes writes
	routes map[*types.Var][]ast.Expr // the handlers that a variable was given by Handle
}

// collectRoutes finds calls such as mux.Handle(pattern, handler) on variables.
func (s *timeoutSearch) collectRoutes(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "Handle" {
			return true
		}
		if mux := variable(s.info, method.X); mux != nil {
			s.routes[mux] = append(s.routes[mux], call.Args[len(call.Args)-1])
		}
		return true
	})
}

// inside reports whether the handler e is a TimeoutHandler or passes requests to one. seen are the
// variables that it was found through.
func (s *timeoutSearch) inside(e ast.Expr, seen []*types.Var) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		if fn, ok := typeutil.Callee(s.info, e).(*types.Func); ok && fn.FullName() == "net/http.TimeoutHandler" {
			return true
		}
		if nameOf(s.info, e) == "idempotent.Store.Handler" {
			return false // reported by itself
		}
		for _, arg := range e.Args {
			if serves(s.info.TypeOf(arg)) && s.inside(arg, seen) {
				return true
			}
		}
	case *ast.Ident:
		return s.holds(variable(s.info, e), seen)
	}
	return false
}

// holds reports whether a variable has a TimeoutHandler as its only value, or was given one by Handle.
func (s *timeoutSearch) holds(v *types.Var, seen []*types.Var) bool {
	if v == nil || slices.Contains(seen, v) {
		return false
	}
	seen = append(slices.Clip(seen), v)
	if values := s.writes[v]; len(values) == 1 && values[0] != nil && s.writes.unchanged(v) && s.inside(values[0], seen) {
		return true
	}
	for _, route := range s.routes[v] {
		if s.inside(route, seen) {
			return true
		}
	}
	return false
}

// serves reports whether t has the method ServeHTTP.
func serves(t types.Type) bool {
	obj, _, _ := types.LookupFieldOrMethod(t, true, nil, "ServeHTTP")
	_, ok := obj.(*types.Func)
	return ok
}
