//go:build unix

package mariadbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
)

// TestMariaDB: what a server has committed is there when it was killed and has started
// again; frozen, it says nothing.
func TestMariaDB(t *testing.T) {
	t.Parallel()
	m := mariadbtest.Start(t)
	db, err := sql.Open("mysql", m.DSN("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{"CREATE TABLE kept (n INT)", "INSERT INTO kept VALUES (42)", "CREATE DATABASE another"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	m.Restart(t)
	n := 0
	if err := db.QueryRow("SELECT n FROM kept").Scan(&n); err != nil || n != 42 {
		t.Errorf("after a restart there is %d, %v", n, err)
	}
	m.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := db.QueryRowContext(ctx, "SELECT n FROM kept").Scan(&n); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen server answers %d, %v", n, err)
	}
	m.Thaw(t)
	if err := db.QueryRow("SELECT n FROM kept").Scan(&n); err != nil {
		t.Errorf("after it was thawed: %v", err)
	}
}

// TestServersEndWithTheTests: a test binary that is killed leaves no server and no
// directory.
func TestServersEndWithTheTests(t *testing.T) {
	t.Parallel()
	addr, data, _ := strings.Cut(hosttest.Orphan(t, func() (said string) {
		m := mariadbtest.Start(t)
		db, err := sql.Open("mysql", m.DSN("test"))
		if err == nil {
			err = db.QueryRow("SELECT @@datadir").Scan(&said)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.Addr() + " " + said
	}), " ")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(data)
		conn, dial := net.Dial("tcp", addr)
		if dial == nil {
			_ = conn.Close()
		}
		if errors.Is(err, fs.ErrNotExist) && dial != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left in %s: %v; the server: %v", data, err, dial)
		}
	}
}
