// Command fencelockvet reports misuses of package fencelock in Go programs:
//
//	fencelockvet ./...
//	go vet -vettool=$(which fencelockvet) ./...
//
// It prints a line for each finding, and then exits with a code that is not 0:
//
//	charge.go:14:15: the lock of Locker.Acquire is never released: write defer lock.Release() after the check of the error
//
// docs/vet.md in the repository describes the checks; "fencelockvet help" lists them.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/fencelock/fencelock/cmd/fencelockvet/checks"
)

func main() { multichecker.Main(checks.All()...) }
