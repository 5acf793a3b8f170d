package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// mariadbServer is a private MariaDB on a free port of the loopback interface, in a folder of its own.
// Its root has no password.
type mariadbServer struct {
	port int
	dir  string
	cmd  *exec.Cmd
	db   *sql.DB // for questions
	name string
}

func startMariaDB() (server, error) {
	s := &mariadbServer{}
	if err := s.start(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *mariadbServer) start() (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "bench-mariadb-"); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	as := []string{"--no-defaults", "--datadir=" + data}
	if os.Geteuid() == 0 { // the server refuses root
		u, err := user.Lookup("mysql")
		if err != nil { // not every package creates it
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			return err
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID, os.Chown(s.dir, uid, gid)); err != nil {
			return err
		}
		as = append(as, "--user="+u.Username)
	}
	install := append(as, "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := exec.Command("mariadb-install-db", install...).CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db failed (install mariadb-server): %w\n%s", err, out)
	}
	s.cmd = exec.Command("mariadbd", append(as, "--port="+strconv.Itoa(s.port), "--bind-address=127.0.0.1",
		"--socket="+filepath.Join(s.dir, "socket"), "--skip-name-resolve", "--max-connections=1000")...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.connect()
}

// connect waits until the server answers, and creates the database and its table.
func (s *mariadbServer) connect() (err error) {
	ctx := context.Background()
	admin, err := sql.Open("mysql", fmt.Sprintf("root@tcp(127.0.0.1:%d)/", s.port))
	if err != nil {
		return err
	}
	defer admin.Close()
	for range 200 {
		if err = admin.PingContext(ctx); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("mariadbd on port %d does not answer: %w", s.port, err)
	}
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE bench"); err != nil {
		return err
	}
	if s.db, err = sql.Open("mysql", s.addr()); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, "SELECT version()").Scan(&s.name); err != nil {
		return err
	}
	return sqlrecords.New(s.db, sqlrecords.MySQL, nil).Init(ctx)
}

func (s *mariadbServer) addr() string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/bench", s.port) }

func (s *mariadbServer) version() string { return "MariaDB " + s.name }

// counters counts the statements that clients have sent.
func (s *mariadbServer) counters() (counters, error) {
	var name string
	c := counters{calls: map[string]int64{}}
	err := s.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &c.total)
	return c, err
}

// stop ends the server as an administrator would, and after a while by force.
func (s *mariadbServer) stop() {
	if s.db != nil {
		_ = s.db.Close()
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
		_ = s.cmd.Wait()
		late.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
