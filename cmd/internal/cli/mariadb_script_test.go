//go:build unix

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
)

// scriptMariaDB implements the script command mariadb:
//
//	mariadb start NAME     start a server, and set the variable NAME to its URL
//	mariadb restart NAME   kill it, and start it again
func scriptMariaDB(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: mariadb start|restart NAME")
		}
		s, tb := ts.Value(serversKey{}).(*scriptServers), scriptTB{t, ts}
		switch args[0] {
		case "start":
			m := mariadbtest.Start(tb)
			s.mariadb[args[1]] = m
			ts.Setenv(args[1], "mariadb://root@"+m.Addr()+"/test")
		case "restart":
			s.mariadb[args[1]].Restart(tb)
		default:
			ts.Fatalf("mariadb %s: unknown", args[0])
		}
	}
}
