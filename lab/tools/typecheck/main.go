// Command typecheck reports what of some modules does not compile on another operating system, such
// as darwin:
//
//	go run -C lab/tools ./typecheck darwin .. ../cmd
//
// It reads the standard library and all dependencies as source. To compile them for that system,
// as go vet would, takes thirty times as long.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

const whatIsNeeded = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS DIRECTORY...")
		os.Exit(64)
	}
	bad := 0
	for _, dir := range os.Args[2:] {
		all, err := packages.Load(&packages.Config{
			Mode: whatIsNeeded, Dir: dir, Tests: true,
			Env: append(os.Environ(), "GOOS="+os.Args[1], "CGO_ENABLED=0"),
		}, "./...")
		if err != nil {
			fmt.Fprintln(os.Stderr, "typecheck:", err)
			os.Exit(1)
		}
		bad += packages.PrintErrors(all)
	}
	if bad > 0 {
		os.Exit(1)
	}
}
