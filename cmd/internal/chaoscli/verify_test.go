//go:build linux

package chaoscli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/cli"
)

func verifyRun(t *testing.T, stdin string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.Command("fencelock", append([]string{"verify"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, _ := cmd.CombinedOutput() // the exit code is checked
	return string(out), cmd.ProcessState.ExitCode()
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const good = `{"name":"n","token":1,"acquired":"2026-01-02T03:00:01Z","released":"2026-01-02T03:00:02Z"}
{"name":"n","token":2,"acquired":"2026-01-02T03:00:03Z","released":"2026-01-02T03:00:04Z"}
`
	bad := strings.Replace(good, "03:00:02Z", "03:00:03.1Z", 1)
	file := filepath.Join(tempDir(t), "log")
	must(t, os.WriteFile(file, []byte(bad), 0o600))
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{good, []string{"-"}, 0, "2 acquisitions of 1 names, 0 writes\naccepted\n"},
		{"", []string{file}, cli.ExitBroken, "invariant 1, overlap: "},
		{"", []string{file, "--skew", "200ms"}, 0, "accepted"},
		{bad, []string{"-", "--json"}, cli.ExitBroken, `"invariant":1`},
		{good, []string{"-", "--edn", "n"}, 0, "{:index 3, :type :ok, :process 0, :f :release, :value 1, "},
		{good, []string{"-", "--edn", "m"}, cli.ExitConfig, `no acquisition of "m"`},
		{"nothing", []string{"-"}, cli.ExitConfig, "no line says"},
		{"", []string{file + "2"}, cli.ExitConfig, "no such file"},
	} {
		if out, code := verifyRun(t, c.stdin, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
}

// TestVerifyWithoutOutput: a history that cannot be written is an error of the output.
func TestVerifyWithoutOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	cmd := exec.Command("fencelock", "verify", "--edn", "n", "-")
	cmd.Stdin = strings.NewReader(`{"name":"n","token":1,"acquired":"2026-01-02T03:00:01Z","released":"2026-01-02T03:00:02Z"}`)
	cmd.Stdout = full
	_ = cmd.Run() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != cli.ExitOutput {
		t.Errorf("exit code %d, want %d", code, cli.ExitOutput)
	}
}

// TestVerifyReadsAHistory: what chaos writes is accepted.
func TestVerifyReadsAHistory(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	if _, stderr, code := chaosRun(t, "--engine", "files", "--for", "2s", "--seed", "1", "--out", dir); code != 0 {
		t.Fatalf("chaos: exit code %d: %s", code, stderr)
	}
	name := filepath.Join(dir, "history.jsonl")
	if out, code := verifyRun(t, "", name); code != 0 || !strings.HasSuffix(out, "accepted\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
