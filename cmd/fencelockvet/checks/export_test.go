package checks

import (
	"fmt"
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Library is the import path of fencelock.
const Library = library

// Mismatches says what the tables of the analyzers have and the library does not.
func Mismatches(pkgs []*packages.Package) (all []string) {
	byPath := map[string]*types.Package{}
	packages.Visit(pkgs, nil, func(p *packages.Package) { byPath[p.PkgPath] = p.Types })
	find := func(name string) *types.Func {
		pkg, rest := library, name
		if i := strings.LastIndex(name, "/"); i >= 0 {
			pkg, rest = pkg+"/"+name[:i], name[i+1:]
		}
		parts := strings.Split(rest, ".")
		if parts[0] == strings.ToLower(parts[0]) {
			if rest != name {
				pkg += "/" + parts[0]
			} else {
				pkg = library + "/" + parts[0]
			}
			parts = parts[1:]
		}
		if byPath[pkg] == nil {
			return nil
		}
		obj := byPath[pkg].Scope().Lookup(parts[0])
		if len(parts) == 2 && obj != nil {
			obj, _, _ = types.LookupFieldOrMethod(types.NewPointer(obj.Type()), true, byPath[pkg], parts[1])
		}
		fn, _ := obj.(*types.Func)
		return fn
	}
	for _, table := range []map[string]bool{errMethods, readers} {
		for name := range table {
			if find(name) == nil {
				all = append(all, fmt.Sprintf("the library has no %s", name))
			}
		}
	}
	for name, f := range functions {
		fn := find(name)
		if fn == nil {
			all = append(all, fmt.Sprintf("the library has no %s", name))
			continue
		}
		params, results := fn.Signature().Params(), fn.Signature().Results()
		if f.callback >= 0 {
			given, ok := params.At(f.callback).Type().(*types.Signature)
			if !ok || !isContext(given.Params().At(0).Type()) {
				all = append(all, fmt.Sprintf("%s: argument %d is no function with a context", name, f.callback))
			}
		}
		if !isContext(params.At(f.ctx).Type()) {
			all = append(all, fmt.Sprintf("%s: argument %d is no context", name, f.ctx))
		}
		if f.name >= 0 && !strings.HasPrefix(params.At(f.name).Name(), "name") {
			all = append(all, fmt.Sprintf("%s: argument %d is no name", name, f.name))
		}
		if text := results.At(0).Type().String(); f.lock && text != "*"+library+".Lock" && text != "*"+library+".LockSet" {
			all = append(all, fmt.Sprintf("%s: its result is no lock", name))
		}
	}
	return all
}
