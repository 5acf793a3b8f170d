// Package house_test holds the rules of this repository: who may import whom,
// how the pages and doc comments are written, and that their links lead somewhere and their
// code works.
package house_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// TestMain runs the tests in the repository's root, of which they speak.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// logFolder lets go test notice changed files. It reuses a result while the files that the tests
// have opened are unchanged, but does not see the change of folder before Run, so that it would look
// for them in the wrong one.
var logFolder = sync.OnceFunc(func() { _ = os.Chdir(".") })
