//go:build unix

// Package mariadbtest starts MariaDB servers for tests.
package mariadbtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/internal/freeze"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// MariaDB is a server for one test, with its own data, on a free port of the loopback interface,
// with an account root without a password and a database test. It ends with the test or the test
// binary. Its methods are not safe for concurrent use, except DSN and Addr.
type MariaDB struct {
	home hosttest.Home
	port int
	env  []string // beside that of the home
	cmd  *exec.Cmd
	gone chan struct{} // closed when the server has ended
}

// tenant is MariaDB, which runs as mysql, whom not every package of it makes, or as nobody.
// The arguments of a server name its directory, so a number that has found a new owner is
// left alone.
var tenant = hosttest.Tenant{Users: []string{"mysql", "nobody"}, Stop: `
pid=$(cat "$1/pid" 2>/dev/null) && test "$pid" -gt 1 &&
	case $(ps -ww -o args= -p "$pid") in *"$1"*) kill -KILL "$pid" ;; esac`}

// Start starts a server. Its data survive a crash of the server, but not one of the host.
func Start(t hosttest.TB) *MariaDB {
	t.Helper()
	return StartBy(t, nil)
}

// StartBy is Start for a server that uses a clock, also after restarts. The clock may be nil.
func StartBy(t hosttest.TB, c *hosttest.Clock) *MariaDB {
	t.Helper()
	m := &MariaDB{home: hosttest.NewHome(t, tenant, "mariadb"), env: c.Env()}
	t.Cleanup(func() { m.discard(t) })
	m.copyTemplate(t)
	m.home.Launch(t, func(port int) error {
		m.port = port
		return m.start(t)
	})
	return m
}

// start runs the server and waits until it lets clients in.
func (m *MariaDB) start(t hosttest.TB) error {
	t.Helper()
	m.cmd = m.home.Command(program(t, "mariadbd", "mysqld"), append(settings(m.data()),
		"--port="+strconv.Itoa(m.port), "--bind-address=127.0.0.1", "--socket="+filepath.Join(m.home.Dir, "socket"),
		"--pid-file="+filepath.Join(m.home.Dir, "pid"), "--skip-name-resolve", "--performance-schema=OFF")...)
	m.cmd.Env = append(m.cmd.Env, m.env...)
	m.gone = m.home.Run(t, m.cmd)
	return m.home.Await(t, m.gone, m.greets)
}

// settings are those of making the data and of serving them. What a commit has written
// is in the hands of the system, which keeps it when the server dies.
func settings(data string) []string {
	return []string{
		"--no-defaults", "--datadir=" + data, "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync",
		"--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M", "--skip-log-bin", "--innodb-use-native-aio=OFF",
	}
}

// greets reports whether the server speaks first, as it does when it lets clients in.
func (m *MariaDB) greets() bool {
	conn, err := net.Dial("tcp", m.Addr())
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(hosttest.Patience))
	_, err = conn.Read(make([]byte, 1))
	return err == nil
}

// Addr returns the address of the server, "127.0.0.1:port". It stays the same after a restart.
func (m *MariaDB) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// DSN returns the data source name of a database for the driver go-sql-driver/mysql. Settings may
// be appended: "?a=b&c=d".
func (m *MariaDB) DSN(database string) string { return DSN(m.Addr(), database) }

// DSN returns the data source name for a server behind another address.
func DSN(addr, database string) string { return fmt.Sprintf("root@tcp(%s)/%s", addr, database) }

// Restart kills the server and starts it again with its data. It tries again if the server ends while
// it starts, as it may if its clock is set back.
func (m *MariaDB) Restart(t hosttest.TB) {
	t.Helper()
	for tries := 0; ; tries++ {
		m.kill(t)
		err := m.start(t)
		if err == nil {
			return
		}
		if tries == 3 {
			t.Fatal(err)
		}
	}
}

// Ended reports whether the server has ended by itself, as InnoDB does if its clock is set back while
// it waits for the disk.
func (m *MariaDB) Ended() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// kill ends the server as a crash does, and returns when it is gone.
func (m *MariaDB) kill(t hosttest.TB) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-m.gone
}

// Freeze stops the server until Thaw, and returns when it has stopped. A server that has ended by
// itself is started again first.
func (m *MariaDB) Freeze(t hosttest.TB) {
	t.Helper()
	err := freeze.Process(m.cmd.Process)
	if errors.Is(err, os.ErrProcessDone) {
		m.Restart(t)
		err = freeze.Process(m.cmd.Process)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Thaw ends a Freeze.
func (m *MariaDB) Thaw(t hosttest.TB) {
	t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}

// discard ends the server and removes what it has left.
func (m *MariaDB) discard(t hosttest.TB) {
	t.Helper()
	if m.cmd != nil && m.cmd.Process != nil {
		m.kill(t)
	}
	m.home.Remove(t)
}

// data is where the server keeps its data.
func (m *MariaDB) data() string { return filepath.Join(m.home.Dir, "data") }

// program finds a program by one of its names, in PATH or where systems keep servers.
func program(t hosttest.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, dir := range []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
	}
	t.Fatalf("%s is missing: make test installs it as root on Debian; or: apt-get install mariadb-server, "+
		"dnf install mariadb-server, brew install mariadb", names[0])
	return ""
}

// template is new data, made once: making them takes many times as long as a copy. They
// last as long as the test binary; their watcher removes them then.
var template struct {
	sync.Mutex // guards home, done
	home       hosttest.Home
	done       bool
}

// copyTemplate makes new data.
func (m *MariaDB) copyTemplate(t hosttest.TB) {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if !template.done {
		template.home = hosttest.NewHome(t, tenant, "mariadb-template")
		made := filepath.Join(template.home.Dir, "new")
		template.home.Must(t, template.home.Command(program(t, "mariadb-install-db", "mysql_install_db"), append(settings(made),
			"--auth-root-authentication-method=normal", "--skip-name-resolve")...))
		template.done = true
	}
	m.home.Must(t, m.home.Command("cp", "-Rp", filepath.Join(template.home.Dir, "new"), m.data()))
}
