package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresServer is a private PostgreSQL on a free port of the loopback
// interface, in a folder of its own. Its superuser is postgres.
type postgresServer struct {
	port int
	dir  string
	cred *syscall.Credential // of the user postgres if we are root, else nil
	cmd  *exec.Cmd
	conn *pgx.Conn // for questions
	name string
}

func startPostgres() (server, error) {
	s := &postgresServer{}
	if err := s.start(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *postgresServer) start() (err error) {
	if s.cred, err = unprivileged(); err != nil {
		return err
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "bench-postgres-"); err != nil {
		return err
	}
	if s.cred != nil {
		if err := os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(s.dir, "data")
	if out, err := s.program("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--locale=C", "--encoding=UTF8").CombinedOutput(); err != nil {
		return fmt.Errorf("initdb failed (install postgresql, 14 or newer): %w\n%s", err, out)
	}
	s.cmd = s.program("postgres", "-D", data, "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections="+strconv.Itoa(maxConnections+200),
		"-c", "max_locks_per_transaction=256", "-c", "log_min_messages=panic")
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.connect()
}

// connect waits until the server answers, and makes what contestants need there.
func (s *postgresServer) connect() error {
	ctx := context.Background()
	err := errors.New("not tried")
	for range 200 {
		if s.conn, err = pgx.Connect(ctx, s.addr()); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("postgres on port %d does not answer: %w", s.port, err)
	}
	if err := s.conn.QueryRow(ctx, "SHOW server_version").Scan(&s.name); err != nil {
		return err
	}
	_, err = s.conn.Exec(ctx, createTable+";"+minimalSQL)
	return err
}

func (s *postgresServer) addr() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

func (s *postgresServer) version() string { return "PostgreSQL " + s.name }

// stop ends the server as an administrator would, and after a while by force.
func (s *postgresServer) stop() {
	if s.conn != nil {
		_ = s.conn.Close(context.Background())
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(syscall.SIGINT)
		late := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT) })
		_ = s.cmd.Wait()
		late.Stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// program is one of the newest installed PostgreSQL, or of the one in PATH.
func (s *postgresServer) program(name string, args ...string) *exec.Cmd {
	newest := 0
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is fine
	for _, path := range paths {
		if major, _ := strconv.Atoi(strings.Split(path, "/")[4]); major > newest {
			newest = major
		}
	}
	path := name
	if newest > 0 {
		path = fmt.Sprintf("/usr/lib/postgresql/%d/bin/%s", newest, name)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

// unprivileged is the user to run PostgreSQL as, which refuses to run as root;
// nil if we are not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres (install postgresql): %w", err)
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errUID, errGID)
}
