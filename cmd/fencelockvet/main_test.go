package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test program be the command.
func TestMain(m *testing.M) {
	if os.Getenv("FENCELOCKVET_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The command works alone and as the tool of go vet, and one check must be turned on.
func TestCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gopath, err := filepath.Abs("checks/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
		n    int
	}{
		{[]string{self, "-lockreentry", "lockreentry"}, "locks are not re-entrant", 10},
		{[]string{"go", "vet", "-vettool=" + self, "-lockreentry", "lockreentry"}, "locks are not re-entrant", 10},
		{[]string{self, "locktokenunused"}, "fencing token", 0},
		{[]string{"go", "vet", "-vettool=" + self, "-locktokenunused", "locktokenunused"}, "fencing token", 10},
	} {
		cmd := exec.Command(c.args[0], c.args[1:]...)
		cmd.Env = append(os.Environ(), "FENCELOCKVET_TEST=1", "GO111MODULE=off", "GOPATH="+gopath)
		out, err := cmd.CombinedOutput()
		text := string(out)
		if (err != nil) != (c.n > 0) || strings.Count(text, c.want) != c.n || strings.Contains(text, "good.go") {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
	}
}
