//go:build unix

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/testkit/kubetest"
)

// scriptKube implements the script command kube:
//
//	kube NAME     start an API server, and set the variable NAME to its URL
func scriptKube(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: kube NAME")
		}
		ts.Setenv(args[0], kubetest.Start(scriptTB{t, ts}).URL)
	}
}
