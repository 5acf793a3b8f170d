package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spdx/tools-golang/json"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

// The tests look at a release of the files that are checked out. "make dist-test" runs them.

const (
	testVersion = "v1.2.3"
	testEpoch   = "1767323045"
)

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	os.Setenv("SOURCE_DATE_EPOCH", testEpoch)
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// dist builds a release once for all tests and returns its directory.
func dist(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "fencelock-dist-test-"); built.err == nil {
			built.err = run(context.Background(), []string{"packages", "-version", testVersion, "-o", filepath.Join(built.dir, "dist")})
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "dist")
}

// artefact returns the name of a file of the release for Linux on this machine.
func artefact(t *testing.T, suffix string) string {
	t.Helper()
	return filepath.Join(dist(t), pack.Archive("1.2.3", "linux", runtime.GOARCH)+suffix)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// unpack unpacks the archive of a system and returns the prefix in it.
func unpack(t *testing.T, target string) string {
	t.Helper()
	goos, arch, _ := strings.Cut(target, "/")
	name, dir := pack.Archive("1.2.3", goos, arch), t.TempDir()
	command(t, "tar", "-xzf", filepath.Join(dist(t), name+".tar.gz"), "-C", dir)
	return filepath.Join(dir, name)
}

func TestReleaseIsWhole(t *testing.T) {
	dir := dist(t)
	var want []string
	for _, target := range allTargets {
		name := pack.Archive("1.2.3", filepath.Dir(target), filepath.Base(target))
		want = append(want, name+".tar.gz", name+".spdx.json")
		if strings.HasPrefix(target, "linux/") {
			want = append(want, name+".deb", name+".rpm", name+".apk", name+".image.tar")
		}
	}
	want = append(want, "SHA256SUMS", "fencelock.rb", "install.sh")
	slices.Sort(want)
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the release has\n%q, want\n%q", got, want)
	}
	sums := string(read(t, filepath.Join(dir, "SHA256SUMS")))
	for _, name := range want {
		if name != "SHA256SUMS" && !strings.Contains(sums, pack.Sum(read(t, filepath.Join(dir, name)))+"  "+name+"\n") {
			t.Errorf("SHA256SUMS does not have the sum of %s", name)
		}
	}
}

// A directory with files of somebody else is not replaced.
func TestOtherDirectoriesStay(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"packages", "image"} {
		err := run(t.Context(), []string{what, "-version", testVersion, "-o", dir, "-targets", "linux/" + runtime.GOARCH})
		if err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A second build in another directory, with another umask and time zone, gives the same bytes.
func TestTwoBuildsAreTheSame(t *testing.T) {
	first := dist(t)
	other := sourceCopy(t)
	second := filepath.Join(t.TempDir(), "dist")
	cmd := exec.Command("sh", "-c", `umask 077 && exec "$0" packages -root "$1" -version "$2" -o "$3"`, program(t), other, testVersion, second)
	cmd.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LANG=tr_TR.UTF-8", "TMPDIR="+t.TempDir(), "GOFLAGS=-buildvcs=true", "GOAMD64=v3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		a, b := read(t, filepath.Join(first, e.Name())), read(t, filepath.Join(second, e.Name()))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs: %s, then %s", e.Name(), pack.Sum(a), pack.Sum(b))
		}
	}
}

// program compiles this program.
func program(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "dist")
	command(t, "go", "build", "-o", name, ".")
	return name
}

func TestBinariesAreStaticAndNamePathsOfNoMachine(t *testing.T) {
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range allTargets {
		data := read(t, filepath.Join(unpack(t, target), "bin", "fencelock"))
		for _, path := range []string{source + "/", filepath.Join(home, "go") + "/", runtime.GOROOT() + "/src"} {
			if len(path) > 5 && bytes.Contains(data, []byte(path)) {
				t.Errorf("%s: the binary has the path %s", target, path)
			}
		}
		if !strings.HasPrefix(target, "linux/") {
			continue
		}
		file, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s: the binary needs a dynamic linker", target)
			}
		}
	}
}

func TestSBOM(t *testing.T) {
	for _, target := range allTargets {
		name := pack.Archive("1.2.3", filepath.Dir(target), filepath.Base(target))
		doc, err := json.Read(bytes.NewReader(read(t, filepath.Join(dist(t), name+".spdx.json"))))
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if len(doc.Packages) < 5 || len(doc.Files) != 1 || len(doc.Relationships) != 2*len(doc.Packages) {
			t.Fatalf("%s: %d packages, %d files, %d relationships", target, len(doc.Packages), len(doc.Files), len(doc.Relationships))
		}
		binary := pack.Sum(read(t, filepath.Join(unpack(t, target), "bin", "fencelock")))
		if got := doc.Files[0].Checksums[1].Value; got != binary {
			t.Errorf("%s: the SBOM is of a binary with the sum %s, that of the archive has %s", target, got, binary)
		}
		modules := command(t, "go", "version", "-m", filepath.Join(unpack(t, target), "bin", "fencelock"))
		for _, p := range doc.Packages[2:] { // after fencelock and the standard library
			if !strings.Contains(modules, "\t"+p.PackageName+"\t"+p.PackageVersion+"\t") {
				t.Errorf("%s: %s %s is not in the binary", target, p.PackageName, p.PackageVersion)
			}
		}
		own := strings.Count(modules, "\n\tdep\tgithub.com/fencelock/fencelock\t") // replaced in a checkout
		if n := strings.Count(modules, "\n\tdep\t") - own; n != len(doc.Packages)-2 {
			t.Errorf("%s: the binary has %d modules, the SBOM %d", target, n, len(doc.Packages)-2)
		}
	}
}

// The install script of the release installs what the archives have, from a server of this host.
func TestInstallScriptOfTheRelease(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(dist(t))))
	defer server.Close()
	to := filepath.Join(t.TempDir(), "local")
	script := filepath.Join(dist(t), "install.sh")
	for _, tool := range []string{"shellcheck", "dash"} {
		if _, err := exec.LookPath(tool); err == nil && tool == "shellcheck" {
			command(t, tool, "-s", "sh", script)
		} else if err == nil {
			command(t, tool, "-n", script)
		}
	}
	cmd := exec.Command("sh", script, "--prefix", to)
	cmd.Env = append(os.Environ(), "FENCELOCK_RELEASES="+server.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checkVersion(t, command(t, filepath.Join(to, "bin", "fencelock"), "version"))
	got, want := listing(t, to), listing(t, unpack(t, runtime.GOOS+"/"+runtime.GOARCH))
	want["share/doc/fencelock/installed"] = got["share/doc/fencelock/installed"]
	compare(t, got, want)
	command(t, "sh", script, "--prefix", to, "--uninstall")
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", listing(t, to))
	}
}

// The files that the formula installs are in the archive, and the archives have its sums.
func TestFormulaOfTheRelease(t *testing.T) {
	formula := string(read(t, filepath.Join(dist(t), "fencelock.rb")))
	for _, target := range []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"} {
		name := pack.Archive("1.2.3", filepath.Dir(target), filepath.Base(target)) + ".tar.gz"
		sum := pack.Sum(read(t, filepath.Join(dist(t), name)))
		want := fmt.Sprintf("url \"%s/releases/download/v1.2.3/%s\"\n      sha256 \"%s\"", homepage, name, sum)
		if !strings.Contains(formula, want) {
			t.Errorf("%s is not in\n%s", want, formula)
		}
	}
	prefix := unpack(t, "darwin/arm64")
	installs := 0
	for line := range strings.Lines(formula) {
		_, what, ok := strings.Cut(line, ".install ")
		if !ok {
			continue
		}
		installs++
		pattern := strings.Split(what, `"`)[1]
		if found, err := filepath.Glob(filepath.Join(prefix, pattern)); err != nil || len(found) == 0 {
			t.Errorf("the archive has no %s (%v)", pattern, err)
		}
	}
	if installs != 6 {
		t.Errorf("the formula installs %d things, want 6", installs)
	}
}

func checkVersion(t *testing.T, out string) {
	t.Helper()
	commit := strings.TrimSpace(command(t, "git", "rev-parse", "HEAD"))
	if want := "fencelock v1.2.3 " + commit + " " + runtime.Version() + " "; !strings.HasPrefix(out, want) {
		t.Errorf("version printed %q, want %q", out, want)
	}
}

// listing returns the sums of all regular files below dir.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		all[rel] = pack.Sum(read(t, name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("%s: %q, want %q", name, got[name], sum)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not in the archive", name)
		}
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute, not yet: %s", what)
		}
	}
}
