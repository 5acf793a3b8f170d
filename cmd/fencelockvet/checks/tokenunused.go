package checks

import (
	"flag"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// TokenUnused reports writes under a lock that do not use its fencing token. It is off by default.
var TokenUnused = &analysis.Analyzer{
	Name: "locktokenunused",
	Doc: `report writes under a lock without its fencing token (off by default)

A holder that is paused for longer than its lease can still write after the next holder. Only a
fencing token prevents this: the resource refuses a token that is lower than one it has seen. The
check reports the first write in the function given to Do, TryDo, DoAll, election.Run or a cron job
if that function uses neither the token nor package fence. A write is a call of Exec, or of a method
such as ExecContext, Put, Set, Save, Insert, Update or Delete that is given a context.

Fix: check the token in the same transaction (fencepostgres.Check and the other guards of package
fence), or pass the token of fencelock.TokenFrom to the resource.

Turn it on with -locktokenunused.on beside the other checks, or with -locktokenunused alone.`,
	Run: runTokenUnused,
}

// tokenOn is the flag that turns TokenUnused on.
var tokenOn bool

func init() { TokenUnused.Flags.BoolVar(&tokenOn, "on", false, "turn this check on") }

// writers are the names of methods that write.
var writers = map[string]bool{
	"Exec": true, "ExecContext": true, "NamedExecContext": true, "SendBatch": true, "CopyFrom": true,
	"Put": true, "PutObject": true, "Set": true, "HSet": true, "Save": true, "Insert": true,
	"Update": true, "Upsert": true, "Delete": true, "Write": true,
}

func runTokenUnused(pass *analysis.Pass) (any, error) {
	on := tokenOn
	flag.Visit(func(f *flag.Flag) { on = on || f.Name == "locktokenunused" && f.Value.String() == "true" })
	if !on {
		return nil, nil
	}
	for _, file := range files(pass) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, f, ok := known(pass.TypesInfo, call)
			if lit, _ := callback(pass.TypesInfo, call); ok && f.work && lit != nil {
				if write := firstWrite(pass.TypesInfo, lit.Body); write != nil && !usesToken(pass.TypesInfo, lit.Body) {
					pass.ReportRangef(write, "this write in the function given to %s does not use the fencing token: "+
						"a holder that was paused can overwrite a later one; see package fence", name)
				}
			}
			return true
		})
	}
	return nil, nil
}

// firstWrite returns the first call that seems to write, or nil. The function given to a nested call
// of the library is checked with that call.
func firstWrite(info *types.Info, body ast.Node) (write *ast.CallExpr) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || write != nil {
			return write == nil
		}
		if lit, _ := callback(info, call); lit != nil {
			return false
		}
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && writers[sel.Sel.Name] && !strings.HasPrefix(nameOf(info, call), "optimistic.") {
			if sel.Sel.Name == "Exec" || len(call.Args) > 0 && isContext(info.TypeOf(call.Args[0])) {
				write = call
			}
		}
		return write == nil
	})
	return write
}

// usesToken reports whether code uses a fencing token or something of package fence.
func usesToken(info *types.Info, body ast.Node) (uses bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return !uses
		}
		obj := info.Uses[id]
		if obj == nil || obj.Pkg() == nil {
			return true
		}
		path := obj.Pkg().Path()
		switch {
		case path == library+"/fence" || strings.HasPrefix(path, library+"/fence/"):
			uses = true
		case path == library || strings.HasPrefix(path, library+"/"):
			switch obj.Name() {
			case "TokenFrom", "HeldFrom", "HeldFor", "Token", "Floor":
				uses = true
			}
		}
		return !uses
	})
	return uses
}
