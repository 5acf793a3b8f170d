package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// jail is a root directory in which commands run.
type jail struct {
	root string
	user string // UID:GID
	env  []string
}

// needRoot skips a test that has to change its root directory.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can change the root directory")
	}
}

// needTool skips a test that uses a program that is not here.
func needTool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not here", name)
	}
}

// safeBuffer is what a process has written so far.
type safeBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// enter changes the root directory to $0 and the user to $1, and starts the rest. /proc, which
// fencelock needs to see what its command has started, is mounted in a namespace of its own, so that
// nothing stays mounted.
const enter = `mount -t proc proc "$0/proc" && user=$1 && shift && exec chroot --userspec="$user" "$0" "$@"`

// start starts a command in the jail. It is killed when the test ends.
func (j jail) start(t *testing.T, args ...string) (*exec.Cmd, *safeBuffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	if err := os.MkdirAll(filepath.Join(j.root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", enter, j.root, j.user}, args...)...)
	out := new(safeBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, j.env...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return cmd, out
}

// run runs a command in the jail and returns what it printed and its exit code.
func (j jail) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd, out := j.start(t, args...)
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// check runs what a user does with a new installation: bin is the command in the jail.
func (j jail) check(t *testing.T, bin string) {
	t.Helper()
	out, code := j.run(t, bin, "version")
	if code != 0 {
		t.Fatalf("version: exit %d: %s", code, out)
	}
	checkVersion(t, out)
	if out, code := j.run(t, bin, "run", "a", "--", bin, "version"); code != 0 || !strings.Contains(out, "fencelock v1.2.3 ") {
		t.Errorf("run: exit %d: %s", code, out)
	}
	leader, told := j.start(t, bin, "elect", "--pass-url", "b", "--", bin, "watch")
	eventually(t, "elect runs its command", func() bool { return strings.Contains(told.String(), " acquired b ") })
	if out, code := j.run(t, bin, "run", "-n", "b", "--", bin, "version"); code != 75 {
		t.Errorf("run of a name that is held: exit %d: %s", code, out)
	}
	if err := leader.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = leader.Wait()
	if out, code := j.run(t, bin, "run", "--wait", "30s", "b", "--", bin, "version"); code != 0 {
		t.Errorf("run after the leader has ended: exit %d: %s", code, out)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, code := j.run(t, bin, "completion", shell); code != 0 || !strings.Contains(out, "fencelock") {
			t.Errorf("completion %s: exit %d: %s", shell, code, out)
		}
	}
	if out, code := j.run(t, bin, "__complete", "ru"); code != 0 || !strings.HasPrefix(out, "run\t") {
		t.Errorf("completion of \"ru\": exit %d: %s", code, out)
	}
}

// bashCompletion is where the package bash-completion is.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// checkShare checks the manual pages and completions below a prefix such as /usr.
func checkShare(t *testing.T, prefix, zsh string) {
	t.Helper()
	for _, page := range []string{"fencelock", "fencelock-run", "fencelock-elect"} {
		name := filepath.Join(prefix, "share/man/man1", page+".1.gz")
		r, err := gzip.NewReader(bytes.NewReader(read(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || !bytes.Contains(text, []byte(".TH \""+strings.ToUpper(page)+"\"")) {
			t.Errorf("%s is no manual page: %v", name, err)
		}
		if _, err := exec.LookPath("man"); err != nil {
			continue
		}
		cmd := exec.Command("man", "-M", filepath.Join(prefix, "share/man"), page)
		cmd.Env = append(os.Environ(), "MANPAGER=cat", "MAN_KEEP_FORMATTING=", "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("SYNOPSIS")) {
			t.Errorf("man %s: %v: %s", page, err, out)
		}
	}
	bash := filepath.Join(prefix, "share/bash-completion/completions/fencelock")
	if out := command(t, "bash", "--norc", "-c", `. "$0" && complete -p fencelock`, bash); !strings.Contains(out, "_fencelock") {
		t.Errorf("completion of bash: %s", out)
	}
	// The package bash-completion finds the file by its name when somebody presses TAB.
	if _, err := os.Stat(bashCompletion); err == nil {
		cmd := exec.Command("bash", "--norc", "-c", `. "$0" && { _completion_loader fencelock; true; } && complete -p fencelock`, bashCompletion)
		cmd.Env = append(os.Environ(), "XDG_DATA_DIRS="+filepath.Join(prefix, "share"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "_fencelock") {
			t.Errorf("completion of bash, loaded by name: %v: %s", err, out)
		}
	}
	for name, first := range map[string]string{zsh: "#compdef fencelock", "share/fish/vendor_completions.d/fencelock.fish": "# fish completion"} {
		if text := read(t, filepath.Join(prefix, name)); !bytes.HasPrefix(text, []byte(first)) {
			t.Errorf("%s begins with %.40q, want %q", name, text, first)
		}
	}
}

// leftovers are the files and directories below root, less those whose name matches.
func leftovers(t *testing.T, root, except string) (all []string) {
	t.Helper()
	skip := regexp.MustCompile(except + "|^proc$") // that of start
	for _, name := range strings.Fields(command(t, "find", root, "-mindepth", "1", "-printf", "%P\n")) {
		if !skip.MatchString(name) {
			all = append(all, name)
		}
	}
	return all
}

// The state of the locks of this host stays when the package is removed: without it tokens would
// begin anew after the next installation.
const stateOfLocks = `|^var/lib/fencelock(/|$)`

func TestDebInAnEmptyRoot(t *testing.T) {
	needRoot(t)
	needTool(t, "dpkg")
	j := jail{root: t.TempDir(), user: "0:0"}
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(j.root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(j.root, "var/lib/dpkg", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "dpkg", "--root="+j.root, "-i", artefact(t, ".deb"))
	j.check(t, "/usr/bin/fencelock")
	checkShare(t, filepath.Join(j.root, "usr"), "share/zsh/vendor-completions/_fencelock")
	if bad := command(t, "dpkg", "--root="+j.root, "--verify", "fencelock"); bad != "" {
		t.Errorf("dpkg --verify: %s", bad)
	}
	command(t, "dpkg", "--root="+j.root, "--purge", "fencelock")
	if left := leftovers(t, j.root, `^var(/lib(/dpkg.*)?)?$`+stateOfLocks); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestRPMInAnEmptyRoot(t *testing.T) {
	needRoot(t)
	needTool(t, "rpm")
	j := jail{root: t.TempDir(), user: "0:0"}
	rpm := func(args ...string) string {
		t.Helper()
		return command(t, "rpm", append([]string{"--root", j.root, "--dbpath", "/var/lib/rpm"}, args...)...)
	}
	rpm("--initdb")
	rpm("-i", "--nodeps", "--nosignature", artefact(t, ".rpm"))
	j.check(t, "/usr/bin/fencelock")
	checkShare(t, filepath.Join(j.root, "usr"), "share/zsh/site-functions/_fencelock")
	if out := rpm("-V", "--nodeps", "fencelock"); out != "" {
		t.Errorf("rpm -V: %s", out)
	}
	rpm("-e", "fencelock")
	var files []string // rpm leaves the directories, which other packages have, too
	for _, name := range leftovers(t, j.root, `^var(/lib(/rpm.*)?)?$`+stateOfLocks) {
		if info, err := os.Stat(filepath.Join(j.root, name)); err != nil || !info.IsDir() {
			files = append(files, name)
		}
	}
	if len(files) > 0 {
		t.Errorf("left behind: %q", files)
	}
}

// An apk is a tar archive in several gzip members. Without apk it is unpacked by hand.
func TestAPKInAnEmptyRoot(t *testing.T) {
	needRoot(t)
	j := jail{root: t.TempDir(), user: "0:0"}
	unpacked, err := gzip.NewReader(bytes.NewReader(read(t, artefact(t, ".apk"))))
	if err != nil {
		t.Fatal(err)
	}
	info := ""
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(j.root, h.Name)
		switch {
		case h.Name == ".PKGINFO":
			info = string(data)
		case h.Typeflag == tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		default:
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, os.FileMode(h.Mode)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(info, "pkgname = fencelock\npkgver = 1.2.3-r1\n") {
		t.Errorf(".PKGINFO is\n%s", info)
	}
	j.check(t, "/usr/bin/fencelock")
	checkShare(t, filepath.Join(j.root, "usr"), "share/zsh/site-functions/_fencelock")
}

func TestArchiveInAnEmptyRoot(t *testing.T) {
	needRoot(t)
	j := jail{root: t.TempDir(), user: "0:0"}
	prefix := filepath.Join(j.root, "usr/local")
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "tar", "-xzf", artefact(t, ".tar.gz"), "--strip-components=1", "-C", prefix)
	j.check(t, "/usr/local/bin/fencelock")
	checkShare(t, prefix, "share/zsh/site-functions/_fencelock")
	names := strings.Fields(command(t, "tar", "-tzf", artefact(t, ".tar.gz")))
	for _, name := range names {
		_, below, _ := strings.Cut(name, "/")
		if !strings.HasSuffix(below, "/") && below != "" {
			if err := os.Remove(filepath.Join(prefix, below)); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range leftovers(t, j.root, `^var(/lib)?$`+stateOfLocks) {
		if info, err := os.Stat(filepath.Join(j.root, name)); err != nil || !info.IsDir() {
			t.Errorf("left behind: %s", name)
		}
	}
}
