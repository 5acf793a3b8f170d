// Command fencelockvet reports misuses of package fencelock in Go programs:
//
//	fencelockvet ./...
//	go vet -vettool=$(which fencelockvet) ./...
//
// docs/vet.md in the repository describes the checks; "fencelockvet help" lists them.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/fencelock/fencelock/fencelockvet/checks"
)

func main() { multichecker.Main(checks.All()...) }
