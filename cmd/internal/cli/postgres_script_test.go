//go:build unix

package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// startPostgres are the "pg" commands that start a server or a proxy, as startCommands.
var startPostgres = map[string]func(s *scriptServers, tb scriptTB, name string, args []string){
	"start": func(s *scriptServers, tb scriptTB, name string, args []string) {
		s.addPostgres(tb, name, pgtest.StartPostgres(tb, args...))
	},
	"standby": func(s *scriptServers, tb scriptTB, name string, args []string) {
		s.addPostgres(tb, name, s.postgres[args[0]].Standby(tb))
	},
	"pooler": func(s *scriptServers, tb scriptTB, name string, args []string) {
		b := pgtest.StartPgBouncer(tb, s.postgres[args[0]], args[1], args[2:]...)
		tb.ts.Setenv(name, b.DSN())
		tb.ts.Setenv(name+"_ROWS", rowsURL(b.DSN()))
	},
	"proxy": func(s *scriptServers, tb scriptTB, name string, args []string) {
		p, err := faults.NewProxy(net.JoinHostPort("127.0.0.1", strconv.Itoa(s.postgres[args[0]].Port())))
		tb.ts.Check(err)
		tb.Cleanup(func() { _ = p.Close() })
		s.proxies[name] = p
		tb.ts.Setenv(name, "postgres://postgres@"+p.Addr()+"/postgres?sslmode=disable")
	},
}

func (s *scriptServers) addPostgres(tb scriptTB, name string, p *pgtest.Postgres) {
	s.postgres[name] = p
	tb.ts.Setenv(name, p.DSN())
	tb.ts.Setenv(name+"_ROWS", rowsURL(p.DSN()))
	tb.ts.Setenv(name+"_HOST", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port())))
	tb.ts.Setenv(name+"_DIR", p.Dir())
}

// rowsURL returns the URL of locks in rows of a server.
func rowsURL(dsn string) string { return strings.Replace(dsn, "postgres:", "postgres+rows:", 1) }

// scriptPostgres implements the script command pg. The first four forms set the variable NAME to a
// URL, and the first three also NAME_ROWS to that of locks in rows:
//
//	pg start NAME [SETTING...]
//	pg standby NAME PRIMARY
//	pg pooler NAME SERVER MODE [SETTING...]
//	pg proxy NAME SERVER
//	pg drop PROXY                      lose all traffic, keep the connections open
//	pg freeze|thaw|kill|restart NAME
//	pg do NAME SQL                     print the first value of the result
func scriptPostgres(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: pg start|do|freeze|... NAME [args...]")
		}
		s, tb := ts.Value(serversKey{}).(*scriptServers), scriptTB{t, ts}
		if start, ok := startPostgres[args[0]]; ok {
			start(s, tb, args[1], args[2:])
			return
		}
		if args[0] == "drop" && s.drop(args[1]) {
			return
		}
		p := s.postgres[args[1]]
		if p == nil {
			ts.Fatalf("there is no postgres %s", args[1])
		}
		s.frozen[args[1]] = time.Now()
		switch args[0] {
		case "do":
			fmt.Fprintln(ts.Stdout(), p.Query(tb, args[2]))
		case "freeze":
			p.Freeze(tb)
		case "thaw":
			p.Thaw(tb)
		case "kill":
			p.Kill(tb)
		case "restart":
			p.Restart(tb)
		default:
			ts.Fatalf("pg %s: unknown", args[0])
		}
	}
}
