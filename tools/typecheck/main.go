// Command typecheck reports what does not compile on another operating system, such as darwin:
//
//	go run -C tools ./typecheck darwin
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
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS")
		os.Exit(64)
	}
	all, err := packages.Load(&packages.Config{
		Mode: whatIsNeeded, Dir: "..", Tests: true,
		Env: append(os.Environ(), "GOOS="+os.Args[1], "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1)
	}
	if packages.PrintErrors(all) > 0 {
		os.Exit(1)
	}
}
