// Package house_test holds the rules of this repository: who may import whom,
// how the pages and doc comments are written, and that their links lead somewhere and their
// code works.
package house_test

import (
	"fmt"
	"os"
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
