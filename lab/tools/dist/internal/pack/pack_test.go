package pack_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// prefix is a small program in the place of fencelock, with a page and a directory of its own.
func prefix(version string) (tree pack.Tree) {
	tree.Add("bin/fencelock", []byte("#!/bin/sh\necho fencelock v"+version+"\n"))
	tree.Add("share/man/man1/fencelock.1.gz", []byte("page "+version))
	tree.Add("share/man/man1/only-in-"+version+".1.gz", []byte("page"))
	tree.Add("share/doc/fencelock/LICENSE", []byte("licence"))
	return tree
}

func archive(t *testing.T, tree pack.Tree) []byte {
	t.Helper()
	data, err := tree.Tar(when)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = pack.Gzip(data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTarIsTheSameInAnyOrder(t *testing.T) {
	tree := prefix("1.0.0")
	tree = append(tree, pack.File{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777})
	turned := slices.Clone(tree)
	slices.Reverse(turned)
	first := archive(t, tree)
	if !bytes.Equal(first, archive(t, turned)) {
		t.Error("the order of the files changes the archive")
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if !unpacked.ModTime.IsZero() || unpacked.Name != "" {
		t.Errorf("the gzip header has the time %v, the name %q", unpacked.ModTime, unpacked.Name)
	}
	modes := map[string]int64{}
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(when) || h.Uid != 0 || h.Gid != 0 || h.Uname != "root" {
			t.Errorf("%s: changed at %v, of %d:%d %s", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		modes[h.Name] = h.Mode
	}
	for name, want := range map[string]int64{"bin/": 0o755, "bin/fencelock": 0o755, "share/man/man1/fencelock.1.gz": 0o644, "tmp/": 0o1777} {
		if modes[name] != want {
			t.Errorf("%s has the mode %o, want %o", name, modes[name], want)
		}
	}
}

func TestImageIsWhole(t *testing.T) {
	data, err := pack.Image{
		OS: "linux", Arch: "arm64", Root: prefix("1.0.0"), User: "65532:65532", Entrypoint: []string{"/bin/fencelock"},
		Name: "fencelock", Tag: "1.0.0", When: when,
	}.Archive()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var index, manifest struct {
		Manifests []struct {
			Digest   string
			Platform struct{ Architecture string }
		}
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	var config struct {
		Config struct{ User string }
		RootFS struct {
			IDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	blob := func(digest string) []byte {
		sum := strings.TrimPrefix(digest, "sha256:")
		data, ok := files["blobs/sha256/"+sum]
		if !ok || pack.Sum(data) != sum {
			t.Fatalf("the blob %s is missing, or is not what its name says", digest)
		}
		return data
	}
	parse(t, files["index.json"], &index)
	parse(t, blob(index.Manifests[0].Digest), &manifest)
	parse(t, blob(manifest.Config.Digest), &config)
	layer, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0].Digest)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(layer)
	if err != nil {
		t.Fatal(err)
	}
	if got := "sha256:" + pack.Sum(plain); got != config.RootFS.IDs[0] {
		t.Errorf("the layer unpacks to %s, the config says %s", got, config.RootFS.IDs[0])
	}
	if config.Config.User != "65532:65532" || index.Manifests[0].Platform.Architecture != "arm64" {
		t.Errorf("config %+v, index %+v", config, index)
	}
}

func parse(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func TestSBOMRefusesReplacedModules(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.com/a"}, Deps: []*debug.Module{
		{Path: "example.com/b", Version: "v1.0.0", Sum: "h1:b"},
	}}
	b := pack.Binary{Name: "a", Version: "v1.2.3", Data: []byte("a"), Info: info, Releases: "https://example.com"}
	text, err := pack.SBOM(b, when)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`pkg:golang/example.com/b@v1.0.0`, `pkg:golang/stdlib@1.26.0`, `"2026-01-02T03:04:05Z"`, pack.Sum(b.Data)} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	info.Deps[0].Replace = &debug.Module{Path: "../b"}
	if _, err := pack.SBOM(b, when); err == nil {
		t.Error("a replaced module is accepted")
	}
	info.Main.Path = "example.com/b/cmd"
	if text, err = pack.SBOM(b, when); err != nil || strings.Contains(string(text), "golang/example.com/b@") {
		t.Errorf("the module around that of the program: %v in\n%s", err, text)
	}
}

// mirror serves archives of the version for this system at a local address.
func mirror(t *testing.T, version string) (url string, script string, d pack.Download) {
	t.Helper()
	name := pack.Archive(version, runtime.GOOS, runtime.GOARCH)
	data := archive(t, prefix(version).Below(name))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name+".tar.gz"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	d = pack.Download{Version: version, Releases: server.URL, Sums: map[string]string{name + ".tar.gz": pack.Sum(data)}}
	text, err := pack.InstallScript(d)
	if err != nil {
		t.Fatal(err)
	}
	script = filepath.Join(dir, "install.sh")
	if err := os.WriteFile(script, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, script, d
}

func sh(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// files lists what is below dir, or nothing if dir is not there.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func needDownloader(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"curl", "wget"} {
		if _, err := exec.LookPath(tool); err == nil {
			return
		}
	}
	t.Skip("curl or wget is needed")
}

func TestInstallScript(t *testing.T) {
	needDownloader(t)
	_, script, _ := mirror(t, "1.0.0")
	dir := t.TempDir()
	to := filepath.Join(dir, "home", "local")
	if out, code := sh(t, nil, script, "--prefix", to); code != 0 || !strings.Contains(out, "1.0.0 is installed") {
		t.Fatalf("exit %d: %s", code, out)
	}
	command := filepath.Join(to, "bin", "fencelock")
	if out, err := exec.Command(command).CombinedOutput(); err != nil || string(out) != "fencelock v1.0.0\n" {
		t.Fatalf("%v: %s", err, out)
	}

	// A newer version takes the place of the older one.
	_, newer, _ := mirror(t, "1.1.0")
	if out, code := sh(t, nil, newer, "--prefix="+to); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if out, err := exec.Command(command).CombinedOutput(); err != nil || string(out) != "fencelock v1.1.0\n" {
		t.Errorf("%v: %s", err, out)
	}
	if all := strings.Join(files(t, to), "\n"); strings.Contains(all, "only-in-1.0.0") || !strings.Contains(all, "only-in-1.1.0") {
		t.Errorf("files of the older version are left:\n%s", all)
	}

	if out, code := sh(t, nil, newer, "--prefix", to, "--uninstall"); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if all := files(t, to); len(all) > 0 {
		t.Errorf("left behind: %q", all)
	}
	if out, code := sh(t, nil, newer, "--prefix", to, "--uninstall"); code != 66 || !strings.Contains(out, "was not installed") {
		t.Errorf("a second removal: exit %d: %s", code, out)
	}
}

func TestInstallScriptKeepsWhatIsNotIts(t *testing.T) {
	needDownloader(t)
	_, script, _ := mirror(t, "1.0.0")
	to := t.TempDir()
	other := filepath.Join(to, "bin", "other")
	if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := files(t, to)
	if out, code := sh(t, []string{"HOME=" + to}, script, "--prefix", to); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if out, code := sh(t, nil, script, "--prefix", to, "--uninstall"); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	if after := files(t, to); !slices.Equal(before, after) {
		t.Errorf("before %q, after %q", before, after)
	}
}

func TestInstallScriptRefuses(t *testing.T) {
	needDownloader(t)
	_, script, d := mirror(t, "1.0.0")
	to := filepath.Join(t.TempDir(), "to")
	evil := t.TempDir()
	for name := range d.Sums {
		if err := os.WriteFile(filepath.Join(evil, name), archive(t, prefix("6.6.6")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(evil)))
	defer server.Close()
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	for _, c := range []struct {
		name, mirror, want string
		args               []string
		code               int
	}{
		{"another archive", server.URL, "nothing is installed", nil, 65},
		{"no archive", empty.URL, "cannot download", nil, 69},
		{"an unknown flag", server.URL, "unknown argument", []string{"--prefiks"}, 64},
		{"a flag without its value", server.URL, "needs a directory", []string{"--prefix"}, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{script, "--prefix", to}, c.args...)
			out, code := sh(t, []string{"FENCELOCK_RELEASES=" + c.mirror}, args...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit %d, want %d with %q: %s", code, c.code, c.want, out)
			}
			if all := files(t, to); len(all) > 0 {
				t.Errorf("installed: %q", all)
			}
		})
	}
}

func TestFormula(t *testing.T) {
	d := pack.Download{Version: "1.2.3", Releases: "https://example.com/v1.2.3", Sums: map[string]string{}}
	for _, system := range []string{"darwin", "linux"} {
		for _, arch := range []string{"amd64", "arm64"} {
			d.Sums[pack.Archive("1.2.3", system, arch)+".tar.gz"] = pack.Sum([]byte(system + arch))
		}
	}
	text, err := pack.Formula(d)
	if err != nil {
		t.Fatal(err)
	}
	pairs := regexp.MustCompile(`url "https://example\.com/v1\.2\.3/(.+)"\n +sha256 "([0-9a-f]{64})"`).FindAllStringSubmatch(string(text), -1)
	if len(pairs) != 4 {
		t.Fatalf("%d archives in\n%s", len(pairs), text)
	}
	for _, p := range pairs {
		if d.Sums[p[1]] != p[2] {
			t.Errorf("%s has the sum %s, want %s", p[1], p[2], d.Sums[p[1]])
		}
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Log("without ruby the syntax is not checked")
		return
	}
	cmd := exec.Command("ruby", "-c")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
