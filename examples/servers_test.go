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

// The two programs of the README, on real servers. The second one runs twice, and then
// against a row that a later holder has written.
func TestREADMEPrograms(t *testing.T) {
	redis := redistest.StartRedis(t)
	for range 2 {
		says(t, "redis", "REDIS_ADDR="+redis.Addr(), "charging invoice 42 under token ")
	}
	postgres := pgtest.StartPostgres(t)
	postgres.Exec(t, "CREATE TABLE invoice (id bigint PRIMARY KEY, paid boolean NOT NULL, fence bigint NOT NULL)")
	postgres.Exec(t, "INSERT INTO invoice VALUES (42, false, 0)")
	for range 2 {
		says(t, "postgres", "DATABASE_URL="+postgres.DSN(), "invoices paid: 1")
	}
	postgres.Exec(t, "UPDATE invoice SET fence = 9223372036854775807")
	says(t, "postgres", "DATABASE_URL="+postgres.DSN(), "invoices paid: 0")
}

func says(t *testing.T, program, env, want string) {
	t.Helper()
	cmd := exec.Command("go", "run", "-ldflags=-w", "./"+program)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%s: %v\n%s, want %q", program, err, out, want)
	}
}
