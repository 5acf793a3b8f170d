//go:build unix

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
)

// shown is a command on a page, and the output that the page shows for it.
type shown struct{ page, command, output string }

// pagesWithOutput are the pages with blocks that begin with "$ fencelock".
var pagesWithOutput = []string{
	"operations.md", "cron.md", "engines/postgres.md",
}

// outputsShown returns every command with its output from these pages.
func outputsShown(t *testing.T) (all []shown) {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	for _, page := range pagesWithOutput {
		b, err := os.ReadFile(filepath.Join("../../../docs", page))
		must(t, err)
		for _, m := range block.FindAllStringSubmatch(string(b), -1) {
			if m[1] != "" { // a block with a language, such as go
				continue
			}
			for part := range strings.SplitSeq("\n"+m[2], "\n$ ") {
				if command, output, _ := strings.Cut(part, "\n"); strings.HasPrefix(command, "fencelock ") {
					all = append(all, shown{page, command, alike(output)})
				}
			}
		}
	}
	return all
}

// alike replaces the parts of an output that differ between runs, such as owners and times.
func alike(output string) string {
	for _, r := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "OWNER"},
		{`\d{4}-\d\d-\d\dT[\d:.]+Z`, "TIME"},
		{`\d+@\S+`, "PID@HOST"},
		{`pid \d+ on \S+`, "pid PID on HOST"},
		{` /\S+,`, " DIRECTORY,"},
		{`from (a local socket|\S+)`, "from ADDRESS"},
		{`is (ahead|behind) by`, "is OFF by"},
		{`\d+(\.\d+)?`, "N"},
		{`(N(ns|µs|ms|s|m|h))+`, "TIME"},
		{` +`, " "},
	} {
		output = regexp.MustCompile(r.pattern).ReplaceAllString(output, r.with)
	}
	return strings.TrimSpace(output)
}

// pageTest compares what commands print with what pages show.
type pageTest struct {
	host

	mu   sync.Mutex // guards left
	left []shown    // outputs on the pages that no command has printed yet
}

// at returns a command with the locks of url, in a directory that has the script that the pages
// use.
func (p *pageTest) at(url string, args ...string) *exec.Cmd {
	cmd := p.command("fencelock", args...)
	cmd.Env, cmd.Dir = append(cmd.Env, "FENCELOCK_URL="+url), p.dir
	return cmd
}

// run runs a command of a page until it prints what the page shows. It repeats the command, since
// the processes whose state the command prints may not have reached that state yet.
func (p *pageTest) run(t *testing.T, url, page, command string) {
	t.Helper()
	args := strings.Fields(command)[1:]
	if i := slices.Index(args, "--reason"); i >= 0 { // the one argument with spaces
		_, reason, _ := strings.Cut(command, "--reason ")
		args = append(args[:i+1], strings.Trim(reason, `"`))
	}
	var printed string
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
		cmd := p.at(url, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // the pages show refusals too
		if printed = stdout.String(); printed == "" {
			printed = stderr.String()
		}
		if p.printed(shown{page, command, alike(printed)}) {
			return
		}
	}
	t.Errorf("docs/%s does not show what %q prints:\n%s", page, command, printed)
}

// printed reports whether the pages show s, and removes s from left.
func (p *pageTest) printed(s shown) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.left, s)
	if i >= 0 {
		p.left = slices.Delete(p.left, i, i+1)
	}
	return i >= 0
}

// hold runs a command in the background until the test ends, and returns the file with its stderr.
func (p *pageTest) hold(t *testing.T, url string, args ...string) string {
	t.Helper()
	f, err := os.CreateTemp(p.dir, "stderr")
	must(t, err)
	cmd := p.at(url, args...)
	cmd.Stderr = f
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		f.Close()
	})
	return f.Name()
}

// TestPagesShowWhatIsPrinted: the command prints the outputs on the pages, except for numbers,
// times, owners and hosts.
func TestPagesShowWhatIsPrinted(t *testing.T) {
	t.Parallel()
	p := &pageTest{host: newHost(t), left: outputsShown(t)}
	must(t, os.WriteFile(p.path("backup.sh"), []byte("#!/bin/sh\n"), 0o700))
	t.Run("engines", func(t *testing.T) {
		t.Run("files", func(t *testing.T) { t.Parallel(); filePages(t, p) })
		t.Run("redis", func(t *testing.T) { t.Parallel(); redisPages(t, p) })
		t.Run("postgres", func(t *testing.T) { t.Parallel(); postgresPages(t, p) })
	})
	if !t.Failed() {
		for _, s := range p.left {
			t.Errorf("docs/%s: no test prints what it shows of %q", s.page, s.command)
		}
	}
}

func filePages(t *testing.T, p *pageTest) {
	url := "file://" + p.path("locks")
	p.hold(t, url, "run", "--note", "backup of db1", "nightly", "--", "sleep", "600")
	eventually(t, "nightly is held", func() bool {
		out, err := p.command("fencelock", "status", "nightly").Output()
		return err == nil && strings.Contains(string(out), "held by")
	})
	p.hold(t, url, "run", "--note", "by hand", "nightly", "--", "true")
	p.hold(t, url, "run", "--limit", "3", "--weight", "2", "gpu", "--", "sleep", "600")
	p.run(t, url, "operations.md", "fencelock ls")
	p.run(t, url, "operations.md", "fencelock status nightly")
	p.run(t, url, "cron.md", "fencelock run -n nightly -- ./backup.sh")
	p.run(t, url, "operations.md", `fencelock break nightly --reason "host db3 is gone"`)

	url = "file://" + p.path("jobs")
	for _, args := range [][]string{
		{"run", "-n", "--tick", "12h", "nightly", "--", "sleep", "0.1"},
		{"run", "-n", "--tick", "5m", "report", "--", "sh", "-c", "sleep 0.1; exit 3"},
	} {
		_ = p.at(url, args...).Run() // one of them fails
	}
	p.run(t, url, "cron.md", "fencelock jobs")
	p.run(t, url, "cron.md", "fencelock run -n --tick 12h nightly -- ./backup.sh")
}

func redisPages(t *testing.T, p *pageTest) {
	url := "redis://" + redistest.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr()
	p.run(t, url, "operations.md", "fencelock doctor")
}

func postgresPages(t *testing.T, p *pageTest) {
	pg := pgtest.StartPostgres(t, "fsync=on")
	pg.Exec(t, "CREATE ROLE app LOGIN", pglock.Schema())
	url := pg.As("app")
	pg.Restart(t)
	p.run(t, url, "engines/postgres.md", "fencelock run -n nightly -- ./backup.sh")
}
