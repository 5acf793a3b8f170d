//go:build linux

package chaoscli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/internal/cli"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test binary be the command, for the tests and for the workers of their runs.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each command would sleep for a second at its exit
	testscript.Main(m, map[string]func(){"fencelock": func() { cli.Main(Jobs(), New, Verify) }})
}

// patience is how long a test waits for something that must happen.
const patience = 3 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// chaosRun runs chaos and returns what it printed and its exit code.
func chaosRun(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command("fencelock", append([]string{"chaos"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tempDir(t)) // for the page
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	_ = cmd.Run() // the exit code is checked
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// wantClean fails unless a run found nothing and left nothing.
func wantClean(t *testing.T, stdout, stderr string, code int) {
	t.Helper()
	if code != 0 || !strings.Contains(stdout, "\noverlaps           0\n") || !strings.Contains(stderr, "nothing is left") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

// TestChaosLeavesNothingOnRedis: the data of others stay as they are, and a prefix in use is
// refused.
func TestChaosLeavesNothingOnRedis(t *testing.T) {
	t.Parallel()
	for seed, parameters := range map[string]string{"1": "", "2": "?quarantine=on&prefix=mine:"} { // the workers are killed, or end in order
		t.Run("seed "+seed, func(t *testing.T) {
			t.Parallel()
			r := redistest.StartRedis(t)
			r.Do(t, "SET", "mine:data", "1")
			url := "redis://" + r.Addr() + parameters
			stdout, stderr, code := chaosRun(t, "--url", url, "--for", "2s", "--seed", seed)
			wantClean(t, stdout, stderr, code)
			if keys := r.Do(t, "KEYS", "*"); keys != "mine:data" {
				t.Errorf("the server has the keys %q", keys)
			}
			prefix := strings.TrimPrefix("mine:da", strings.TrimPrefix(parameters, "?quarantine=on&prefix="))
			if _, stderr, code := chaosRun(t, "--url", url, "--prefix", prefix); code != cli.ExitUnavailable || !strings.Contains(stderr, "in use: 1 keys") {
				t.Errorf("a prefix in use: exit code %d: %s", code, stderr)
			}
		})
	}
}

// TestChaosLeavesNothingOnPostgres: a schema that it has created is dropped, and one that exists
// keeps what others have stored in it.
func TestChaosLeavesNothingOnPostgres(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE TABLE data AS SELECT 1 AS n")
	stdout, stderr, code := chaosRun(t, "--url", pg.DSN(), "--for", "2s", "--seed", "1")
	wantClean(t, stdout, stderr, code)
	if n := pg.Query(t, "SELECT count(*) FROM pg_namespace WHERE nspname = 'fencelock'"); n != "0" {
		t.Error("the schema fencelock is left")
	}
	socket := fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", pg.Dir(), pg.Port()) // connections that no proxy disturbs
	stdout, stderr, code = chaosRun(t, "--url", socket, "--for", "1s", "--seed", "1", "--workers", "2")
	wantClean(t, stdout, stderr, code)
	pg.Exec(t, "CREATE USER guest")
	if _, stderr, code := chaosRun(t, "--url", strings.Replace(pg.DSN(), "postgres@", "guest@", 1)); code != cli.ExitUnavailable || !strings.Contains(stderr, "may not create it") || !strings.Contains(stderr, "nothing is left") {
		t.Errorf("a role without rights: exit code %d: %s", code, stderr)
	}
	pg.Exec(t, pglock.Schema(), "INSERT INTO fencelock.resized VALUES (1, 'theirs', 3)")
	stdout, stderr, code = chaosRun(t, "--url", pg.DSN(), "--for", "1s", "--seed", "3", "--workers", "2")
	wantClean(t, stdout, stderr, code)
	if n := pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.held) || ' ' || (SELECT string_agg(name, ' ') FROM fencelock.resized) || ' ' || (SELECT sum(n) FROM data)"); n != "0 theirs 1" {
		t.Errorf("the database has %q", n)
	}
}

// TestChaosLeavesNothingOnMariaDB: it uses a table of its own, which it drops.
func TestChaosLeavesNothingOnMariaDB(t *testing.T) {
	t.Parallel()
	m := mariadbtest.Start(t)
	url := "mariadb://root@" + m.Addr() + "/test"
	if out, err := exec.Command("fencelock", "--url", url, "run", "theirs", "--", "true").CombinedOutput(); err != nil { // makes the usual table
		t.Fatalf("%v: %s", err, out)
	}
	stdout, stderr, code := chaosRun(t, "--url", url, "--for", "2s", "--seed", "1")
	wantClean(t, stdout, stderr, code)
	db, err := sql.Open("mysql", m.DSN("test"))
	must(t, err)
	defer db.Close()
	var tables string
	must(t, db.QueryRow("SELECT group_concat(table_name) FROM information_schema.tables WHERE table_schema = 'test'").Scan(&tables))
	if tables != "fencelock_record" {
		t.Errorf("the database has the tables %s", tables)
	}
	if _, stderr, code := chaosRun(t, "--url", url+"?table=fencelock", "--prefix", "record"); code != cli.ExitUnavailable || !strings.Contains(stderr, "in use: 1 keys") {
		t.Errorf("a table in use: exit code %d: %s", code, stderr)
	}
	if _, stderr, code := chaosRun(t, "--url", url, "--prefix", strings.Repeat("p", 39)); code != cli.ExitConfig || !strings.Contains(stderr, "a shorter --prefix") {
		t.Errorf("a long prefix: exit code %d: %s", code, stderr)
	}
	for _, grant := range []string{"CREATE DATABASE other", "CREATE USER guest", "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON other.* TO guest"} {
		_, err := db.Exec(grant)
		must(t, err)
	}
	if _, stderr, code := chaosRun(t, "--url", "mariadb://guest@"+m.Addr()+"/other"); code != cli.ExitUnavailable || !strings.Contains(stderr, "try: a user with CREATE and DROP") {
		t.Errorf("a user who may not drop tables: exit code %d: %s", code, stderr)
	}
}

// TestChaosLeavesNothingInRows: it uses a table of its own behind a pooler, which it drops with its
// trigger.
func TestChaosLeavesNothingInRows(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pooled := pgtest.StartPgBouncer(t, pg, "transaction").DSN()
	url := strings.Replace(pooled, "postgres:", "postgres+rows:", 1) + "&listen=" + strings.ReplaceAll(pg.DSN(), "&", "%26")
	stdout, stderr, code := chaosRun(t, "--url", url, "--for", "2s", "--seed", "1")
	wantClean(t, stdout, stderr, code)
	if n := pg.Query(t, "SELECT (SELECT count(*) FROM pg_tables WHERE schemaname = 'public') || ' ' || (SELECT count(*) FROM pg_proc WHERE proname LIKE 'fencelock%')"); n != "0 0" {
		t.Errorf("tables and functions that are left: %s", n)
	}
}

// TestChaosLeavesNothingOnS3: it uses objects with a prefix of its own, which it deletes.
func TestChaosLeavesNothingOnS3(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret"} {
		t.Setenv(name, value)
	}
	server := objecttest.Start(t)
	url := "s3://bucket/team?endpoint=" + server.URL
	if out, err := exec.Command("fencelock", "--url", url, "run", "theirs", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := server.Len()
	stdout, stderr, code := chaosRun(t, "--url", url, "--for", "2s", "--seed", "1")
	wantClean(t, stdout, stderr, code)
	if after := server.Len(); after != before {
		t.Errorf("the server has %d objects, and had %d", after, before)
	}
}

// TestChaosLeavesNothingOnKubernetes: it uses locks with a prefix of its own, whose objects it
// deletes. The certificate of the server is verified through the proxies.
func TestChaosLeavesNothingOnKubernetes(t *testing.T) {
	t.Parallel()
	server := kubetest.StartTLS(t)
	server.Token = "secret"
	dir := tempDir(t)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Server.Certificate().Raw})
	must(t, os.WriteFile(dir+"/ca", ca, 0o600))
	must(t, os.WriteFile(dir+"/token", []byte(server.Token), 0o600))
	url := "k8s://shop?server=" + server.URL + "&ca=" + dir + "/ca&token-file=" + dir + "/token"
	for _, name := range []string{"theirs", "Theirs"} {
		if out, err := exec.Command("fencelock", "--url", url, "run", name, "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	server.Put("shop", "elected", map[string]any{"spec": map[string]any{"holderIdentity": "pod-1"}})
	before := server.Names()
	for _, prefix := range []string{"chaos-test:", "chaos-test-"} { // the second one makes names of objects
		stdout, stderr, code := chaosRun(t, "--url", url, "--for", "2s", "--seed", "1", "--prefix", prefix)
		wantClean(t, stdout, stderr, code)
	}
	if after := server.Names(); !slices.Equal(after, before) {
		t.Errorf("the objects are %q, and were %q", after, before)
	}
	for _, prefix := range []string{"their", "Their", "elect"} {
		if _, stderr, code := chaosRun(t, "--url", url, "--prefix", prefix); code != cli.ExitUnavailable || !strings.Contains(stderr, "in use: 1 keys") {
			t.Errorf("the prefix %s: exit code %d: %s", prefix, code, stderr)
		}
	}
	server.Intercept(func(w http.ResponseWriter, r *http.Request, _ func()) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
		}
		return r.Method == http.MethodDelete
	})
	if _, stderr, code := chaosRun(t, "--url", url); code != cli.ExitUnavailable || !strings.Contains(stderr, "403") || len(server.Names()) != len(before) {
		t.Errorf("without the right to delete: exit code %d, objects %q: %s", code, server.Names(), stderr)
	}
	server.Intercept(nil)
	must(t, os.WriteFile(dir+"/token", []byte("old"), 0o600))
	if _, stderr, code := chaosRun(t, "--url", url); code != cli.ExitUnavailable || !strings.Contains(stderr, "401") {
		t.Errorf("a wrong token: exit code %d: %s", code, stderr)
	}
}

// TestShortestTTL compares the page with the code.
func TestShortestTTL(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/guarantees.md")
	must(t, err)
	if item := fmt.Sprintf("- `fencelock-all chaos`: %d ms\n", ShortestTTL.Milliseconds()); !strings.Contains(string(page), item) {
		t.Errorf("the page does not have %s", item)
	}
}

// TestChaosFindsSabotage: a broken engine is exit code 70, and the history shows the violation.
func TestChaosFindsSabotage(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	stdout, stderr, code := chaosRun(t, "--engine", "redis", "--sabotage", "owner-check", "--seed", "3", "--out", dir)
	if code != cli.ExitBroken || !strings.Contains(stdout, "violation: ") || !strings.Contains(stdout, "--seed ") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	h, err := history.Read(dir + "/history.jsonl")
	must(t, err)
	if len(h.Violations) == 0 || len(h.Workers) != 5 || h.Engine != "redis" {
		t.Errorf("the history has %d violations and %d workers of %s", len(h.Violations), len(h.Workers), h.Engine)
	}
	if page, err := os.ReadFile(dir + "/chaos.html"); err != nil || !strings.Contains(string(page), "--sabotage owner-check") {
		t.Errorf("the page does not say how to repeat the run: %v", err)
	}
}

// TestChaosEndsInOrder: after SIGINT it prints what it has found so far, and dies of SIGINT.
func TestChaosEndsInOrder(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command("fencelock", "chaos", "--url", "file://"+dir, "--json", "--for", "1h", "--out", tempDir(t))
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	must(t, cmd.Start())
	over := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // the test fails then
	defer over.Stop()
	for entries, _ := os.ReadDir(dir); len(entries) == 0; entries, _ = os.ReadDir(dir) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second) // it counts nothing before its workers have started, and may be interrupted then too
	must(t, cmd.Process.Signal(unix.SIGINT))
	_ = cmd.Wait() // the state is checked
	state := cmd.ProcessState
	if state.Sys().(syscall.WaitStatus).Signal() != unix.SIGINT || !strings.Contains(talk.String(), "nothing is left") {
		t.Errorf("%v: %s", state, talk.String())
	}
	var view chaosView
	if err := json.Unmarshal(out.Bytes(), &view); err != nil || view.Engine != "file" || view.Workers != 5 || len(view.Violations) > 0 {
		t.Errorf("%v, %+v", err, view)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestChaosOutlivesItsReader: it cleans up although nobody reads what it prints.
func TestChaosOutlivesItsReader(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd := exec.Command("fencelock", "chaos", "--url", "file://"+dir, "--for", "1s", "--seed", "1", "--out", tempDir(t))
	talk, err := cmd.StderrPipe()
	must(t, err)
	must(t, talk.Close())
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestChaosNeedsItsDirectory: a run does not begin if its results could not be written.
func TestChaosNeedsItsDirectory(t *testing.T) {
	t.Parallel()
	file := tempDir(t) + "/file"
	must(t, os.WriteFile(file, nil, 0o600))
	if stdout, stderr, code := chaosRun(t, "--engine", "files", "--for", "1h", "--out", file); code != cli.ExitOutput || stdout != "" {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

func TestChaosRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--url redis://192.0.2.1":                     "192.0.2.1 is another host",
		"--url redlock://localhost,127.0.0.2,db3":     "db3 is another host",
		"--url postgres://db/x":                       "db is another host",
		"--url mariadb://db/x":                        "db is another host",
		"--url s3://bucket?region=eu-west-1":          "S3 is another host",
		"--url s3://bucket?endpoint=https://minio":    "minio is another host",
		"--url k8s://shop?server=https://api:6443":    "api is another host; its server would get up to 50 acquires",
		"--url k8s://shop?server=https://api&ca=none": "none",
		"--url mem:":                                   "mem has no servers that several processes share",
		"--engine redis --faults kill,flood":           `"flood" is not one of`,
		"--engine etcd":                                `"etcd" is not one of`,
		"--engine files --sabotage margin":             "locks on files have none",
		"--engine redis --sabotage sand":               `"sand" is not one of`,
		"--engine redis --yes":                         "leave them out with --engine",
		"--engine redis --url redis://localhost":       "write one of them",
		"--engine redis --ttl 10ms":                    "--ttl 10ms is not between",
		"--url redis://localhost --for 1ms":            "--for 1ms is shorter",
		"--url file:///tmp/x --prefix ../y --for 10ms": "shorter",
		"--url file:///tmp/x --prefix ../y":            `"../y" is not a name for a directory`,
	} {
		if _, stderr, code := chaosRun(t, strings.Fields(args)...); code != cli.ExitUsage && code != cli.ExitConfig || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}

// TestChaosThroughEveryClient: the faults of connections reach every kind of URL, and every server
// is left without keys.
func TestChaosThroughEveryClient(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELOCK_SLOW") == "" {
		t.Skip("it takes half a minute; set FENCELOCK_SLOW")
	}
	cluster, sentinel := redistest.StartRedisCluster(t, 3), redistest.StartSentinel(t, 3)
	secure, ca := redistest.StartRedisTLS(t)
	nodes := []*redistest.Redis{redistest.StartRedis(t), redistest.StartRedis(t), redistest.StartRedis(t)}
	for url, servers := range map[string][]*redistest.Redis{
		"redis+cluster://" + strings.Join(cluster.Addrs(), ","):                                 cluster.Nodes(),
		"redis+sentinel://" + strings.Join(sentinel.Addrs(), ",") + "/" + sentinel.MasterName(): {sentinel.Master()},
		"redlock://" + nodes[0].Addr() + "," + nodes[1].Addr() + "," + nodes[2].Addr():          nodes,
		"rediss://" + secure.Addr() + "?ca=" + ca:                                               {secure},
	} {
		stdout, stderr, code := chaosRun(t, "--url", url, "--for", "3s", "--seed", "2", "--faults", "cut,drop,delay")
		wantClean(t, stdout, stderr, code)
		for _, r := range servers {
			if keys := r.Do(t, "KEYS", "*"); keys != "" {
				t.Errorf("%s has the keys %.500q", url, keys)
			}
		}
	}
}
