package pipe

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// blocks returns the code of a language on a page.
func blocks(t *testing.T, page, language string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../docs", page))
	must(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(b), -1) {
		all = append(all, m[1])
	}
	if len(all) == 0 {
		t.Fatalf("docs/%s has no %s", page, language)
	}
	return all
}

// directory returns a directory that is removed after the test.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fencelock-pipe")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestPagePython runs the first program of docs/languages.md, with the address of the test's server.
func TestPagePython(t *testing.T) {
	t.Parallel()
	interpreter, server := python(t), redistest.StartRedis(t)
	code := strings.Replace(blocks(t, "languages.md", "python")[0], "localhost:6379", server.Addr(), 1)
	if out := string(run(t, nil, interpreter, "-c", code)); !regexp.MustCompile(`^invoice 42 is ours, token \d+\npaid\n$`).MatchString(out) {
		t.Errorf("it prints %q", out)
	}
}

// TestPythonExamples runs clients/python/examples.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	interpreter, server := python(t, "fastapi", "uvicorn", "sqlalchemy"), redistest.StartRedis(t)
	run(t, []string{"FENCELOCK_URL=redis://" + server.Addr(), "PYTHONWARNINGS="}, interpreter, filepath.Join(clients, "python/tests/test_examples.py"))
}

// nodeTest uses the client for Node of the page.
const nodeTest = `
import { locks } from "./locks.mjs";
import assert from "node:assert/strict";
const a = locks(process.env.FENCELOCK_URL), b = locks(process.env.FENCELOCK_URL);
const never = ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
let first;
await a.lock("x", { ttl_ms: 2000 }, async ({ token, check }) => {
  first = token;
  await assert.rejects(b.lock("x", { wait_ms: 0 }, () => {}), { class: "held" });
  check();
});
let lost;
await assert.rejects(a.lock("x", { ttl_ms: 2000 }, (held) => {
  a.child.kill("SIGKILL");
  return never(held).finally(() => { lost = performance.now(); });
}), { class: "lost" });
await assert.rejects(a.lock("y", {}, () => {}), /has ended/);
await b.lock("x", { ttl_ms: 2000 }, ({ token }) => {
  assert(performance.now() >= lost);
  assert(token > first);
});
await assert.rejects(b.lock("x", { ttl_ms: 2000 }, (held) => {
  b.child.kill("SIGSTOP");
  return never(held);
}), { class: "lost" }).finally(() => b.child.kill("SIGCONT"));
b.close();
`

// TestPageNode runs the client for Node of docs/languages.md.
func TestPageNode(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: .ci/need languages")
	}
	server, dir := redistest.StartRedis(t), directory(t)
	js := blocks(t, "languages.md", "js")
	client, err := os.ReadFile("../../../clients/node/locks.mjs")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "locks.mjs"), client, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "test.mjs"), []byte(nodeTest), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "page.mjs"), []byte(strings.Replace(js[0], "localhost:6379", server.Addr(), 1)), 0o600))
	run(t, []string{"FENCELOCK_URL=redis://" + server.Addr()}, node, filepath.Join(dir, "test.mjs"))
	run(t, nil, node, "--check", filepath.Join(dir, "page.mjs"))
}

// protocolTest uses the client for Redis of examples/python.
const protocolTest = `
import sys, threading
url = sys.argv[1]
a, b = Client(url), Client(url)
lock, owner, token, end = a.acquire("invoices", wait=10)
assert end > time.monotonic() and a.renew(lock, owner, token, 30_000) > end
try:
    b.acquire("invoices")
    raise SystemExit("both hold it")
except Held:
    pass
try:
    b.acquire("invoices", wait=0.3)
    raise SystemExit("both hold it")
except Held:
    pass
timer = threading.Timer(0.3, a.release, (lock, owner, token))
timer.start()
second = b.acquire("invoices", wait=60)
timer.join()
assert second[2] > token, (second, token)
assert a.renew(lock, owner, token, 30_000) is None and not a.release(lock, owner, token)
assert b.release(*second[:3])
dead = a.acquire("invoices", ttl=500)
third = b.acquire("invoices", wait=60)
assert third[2] > dead[2] and b.release(*third[:3])
import subprocess
held = b.acquire("invoices", note="from Python")
status = subprocess.run(["fencelock", "status", "invoices"], capture_output=True, text=True).stdout
assert "from Python" in status, status
assert subprocess.run(["fencelock", "run", "-n", "invoices", "--", "true"], capture_output=True).returncode == 75
assert b.release(*held[:3])
assert subprocess.run(["fencelock", "run", "-n", "invoices", "--", "true"], capture_output=True).returncode == 0
`

// TestProtocolPython runs the client of examples/python, which speaks to Redis itself.
func TestProtocolPython(t *testing.T) {
	t.Parallel()
	interpreter, server, dir := python(t, "redis"), redistest.StartRedis(t), directory(t)
	client, err := filepath.Abs("../../../examples/python/redis_lock.py")
	must(t, err)
	file := filepath.Join(dir, "test.py")
	code := "import sys\nsys.path.insert(0, \"" + filepath.Dir(client) + "\")\nfrom redis_lock import *\n"
	must(t, os.WriteFile(file, []byte(code+protocolTest), 0o600))
	url := "redis://" + server.Addr()
	run(t, []string{"FENCELOCK_URL=" + url, "PYTHONWARNINGS="}, interpreter, file, url)
}
