//go:build unix

package examples_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// The programs whose parts the README shows, on real servers. They report a server that is
// down, and the second one also a row that a later holder has written.
func TestREADMEPrograms(t *testing.T) {
	t.Parallel()
	redis := redistest.StartRedis(t)
	for range 2 {
		says(t, "redis", "REDIS_ADDR="+redis.Addr(), "charging invoice 42 under token ", true)
	}
	says(t, "redis", "REDIS_ADDR=127.0.0.1:1", "not charged, Redis is unreachable: ", false)
	postgres := pgtest.StartPostgres(t)
	postgres.Exec(t, "CREATE TABLE invoice (id bigint PRIMARY KEY, paid boolean NOT NULL)")
	postgres.Exec(t, "INSERT INTO invoice VALUES (42, false)")
	for range 2 {
		says(t, "postgres", "DATABASE_URL="+postgres.DSN(), "invoice 42 is paid\n", true)
	}
	postgres.Exec(t, "UPDATE fence_floor SET floor = 9223372036854775807")
	says(t, "postgres", "DATABASE_URL="+postgres.DSN(), "stale token", false)
}

// says runs a program and checks what it prints, and whether it succeeds.
func says(t *testing.T, program, env, want string, ok bool) {
	t.Helper()
	cmd := exec.Command("go", "run", "-ldflags=-w", "./"+program)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if (err == nil) != ok || !strings.Contains(string(out), want) {
		t.Errorf("%s: %v\n%s, want %q", program, err, out, want)
	}
}
