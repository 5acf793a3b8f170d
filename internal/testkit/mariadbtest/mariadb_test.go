//go:build unix

package mariadbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

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

const orphan = "FENCELOCK_TEST_ORPHAN"

// TestServersEndWithTheTests: a test binary that is killed leaves no server and no
// directory.
func TestServersEndWithTheTests(t *testing.T) {
	if dir := os.Getenv(orphan); dir != "" {
		mariadbtest.Start(t)
		if err := os.WriteFile(dir+"/started", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {} // until it is killed
	}
	t.Parallel()
	dir, err := os.MkdirTemp("", "fencelock-orphan-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { // the servers run as another user
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersEndWithTheTests$")
	cmd.Env = append(os.Environ(), orphan+"="+dir, "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }() // ends when it is killed
	for started := false; !started; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-gone:
			t.Fatalf("it ended before its server ran: %v", err)
		default:
			_, err := os.Stat(dir + "/started")
			started = err == nil
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-gone
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left, err := os.ReadDir(dir)
		if err == nil && len(left) == 1 { // the file "started"
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d things are left in %s, %v", len(left), dir, err)
		}
	}
}
