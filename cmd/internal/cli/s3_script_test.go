//go:build unix

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/testkit/objecttest"
)

// scriptS3 implements the script command s3:
//
//	s3 start NAME   start an object server, and set the variable NAME to the URL of a bucket in it
//	s3 lax NAME     the same, but the server ignores the conditions of writes
//
// Both set a login.
func scriptS3(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 || args[0] != "start" && args[0] != "lax" {
			ts.Fatalf("usage: s3 start|lax NAME")
		}
		server := objecttest.Start(scriptTB{t, ts}, func(s *objecttest.Server) { s.Lax = args[0] == "lax" })
		ts.Setenv(args[1], "s3://bucket/team?endpoint="+server.URL)
		ts.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		ts.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	}
}
