//go:build unix

package pgtest

import (
	"fmt"
	"sync"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// common is the server of all databases of Database. It starts at the first use and lasts as long
// as the test binary; its watcher ends it then.
var common struct {
	sync.Mutex // guards the rest
	server     *Postgres
	create     string // what follows the name in CREATE DATABASE
	databases  int
}

// Database returns a new database of a server that all tests of the binary share. It is dropped at
// the end of the test, with the sessions that are left. It costs a tenth of a server. Roles, the list
// of sessions and that of locks are the server's, so a test that creates roles or counts the sessions
// of all databases needs StartPostgres, and so does one that stops, freezes or configures the
// server or a process of it.
func Database(t hosttest.TB) *Postgres {
	t.Helper()
	server, name, how := commonServer(t)
	server.Exec(t, "CREATE DATABASE "+name+how)
	p := newPostgres(server.home, nil)
	p.database, p.shared, p.port, p.cmd, p.gone = name, true, server.port, server.cmd, server.gone
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of the common server:\n%s", p.home.Log())
		}
		server.Exec(t, "DROP DATABASE "+name+" WITH (FORCE)")
	})
	return p
}

// commonServer returns the common server, and what is between CREATE DATABASE and the end of the
// statement for a new database. Exec may be called at any time there: it borrows a connection.
func commonServer(t hosttest.TB) (server *Postgres, name, how string) {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if common.server == nil {
		server = newPostgres(newHome(t, "common"), []string{"max_connections=400", "max_locks_per_transaction=256"})
		copyTemplate(t, whole, server.home, server.data())
		server.onFreePort(t)
		common.create = " TEMPLATE template0"
		if server.Query(t, "SELECT current_setting('server_version_num')::int >= 150000") == "true" {
			common.create += " STRATEGY file_copy" // the other one writes all of it to the WAL
		}
		common.server = server
	}
	common.databases++
	return common.server, fmt.Sprintf("test%d", common.databases), common.create
}
