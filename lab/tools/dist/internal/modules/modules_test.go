package modules_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/modules"
)

const version = "v0.3.0"

// write writes files below dir, each given by its name and text.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// in runs a command in dir and returns what it printed, and whether it failed.
func in(t *testing.T, dir string, env []string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func must(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, ok := in(t, dir, env, args...)
	if !ok {
		t.Fatalf("%q failed:\n%s", args, out)
	}
	return out
}

func commit(t *testing.T, dir string) {
	t.Helper()
	must(t, dir, nil, "git", "add", "-A")
	must(t, dir, nil, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-qm", "a commit")
}

// repository makes a root module with a nested one that is a command, one that does not require the
// root module, and three that are not released.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":          "module example.com/lib\n\ngo 1.26.0\n",
		"lib.go":          "// Package lib greets.\npackage lib\n\nfunc Greeting() string { return \"hello\" }\n",
		"cmd/a/go.mod":    "module example.com/lib/cmd/a\n\ngo 1.26.0\n\nreplace example.com/lib => ../..\n\nrequire example.com/lib v0.0.0\n",
		"cmd/a/main.go":   "// Command a greets.\npackage main\n\nimport \"example.com/lib\"\n\nfunc main() { print(lib.Greeting()) }\n",
		"vet/go.mod":      "module example.com/lib/vet\n\ngo 1.26.0\n",
		"vet/main.go":     "// Command vet needs no library.\npackage main\n\nfunc main() {}\n",
		"lab/go.mod":      "module example.com/lib/lab\n\ngo 1.26.0\n\nreplace example.com/lib => ..\n\nrequire example.com/lib v0.0.0\n",
		"examples/go.mod": "module example.com/lib/examples\n\ngo 1.26.0\n",
		// The path of another project, as for a run of its tests.
		"lab/other/go.mod": "module example.com/other/v10\n\ngo 1.26.0\n",
	})
	must(t, dir, nil, "git", "init", "-q")
	commit(t, dir)
	return dir
}

// proxied is the environment of go with a proxy in a directory, and caches of the test.
func proxied(t *testing.T, proxy string) []string {
	t.Helper()
	dir := t.TempDir()
	return []string{
		"GOPROXY=file://" + proxy, "GONOSUMDB=*", "GOFLAGS=-modcacherw", "GOWORK=off", "GOMODCACHE=" + filepath.Join(dir, "mod"),
		"GOBIN=" + filepath.Join(dir, "bin"), "GOTOOLCHAIN=local",
	}
}

func TestReleasedModuleCanBeInstalled(t *testing.T) {
	dir, proxy := repository(t), t.TempDir()
	if err := modules.Release(t.Context(), dir, version, proxy); err != nil {
		t.Fatal(err)
	}
	env := proxied(t, proxy)
	must(t, t.TempDir(), env, "go", "install", "example.com/lib/cmd/a@latest")
	if out := must(t, dir, nil, filepath.Join(strings.TrimPrefix(env[5], "GOBIN="), "a")); out != "hello" {
		t.Errorf("the command printed %q", out)
	}
	// A module that does not require the root module is released as it is.
	must(t, t.TempDir(), env, "go", "install", "example.com/lib/vet@latest")
	// The module builds at its own commit too, since go.sum has the checksums.
	must(t, filepath.Join(dir, "cmd/a"), append(env, "GOFLAGS=-mod=readonly -modcacherw"), "go", "build", "-o", os.DevNull, ".")
	// Nothing else has changed.
	if out := must(t, dir, nil, "git", "status", "--porcelain"); out != " M cmd/a/go.mod\n?? cmd/a/go.sum\n" {
		t.Errorf("changes:\n%s", out)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "cmd/a/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(mod); strings.Contains(text, "replace") || !strings.Contains(text, "example.com/lib "+version) {
		t.Errorf("go.mod is\n%s", text)
	}
}

// A nested module may require another one. The checksums in its go.sum are those of the archives that
// a proxy makes of the tags.
func TestReleasedModuleThatRequiresAnother(t *testing.T) {
	dir, proxy := repository(t), t.TempDir()
	write(t, dir, map[string]string{
		"LICENSE":       "do what you like\n",
		"store/go.mod":  "module example.com/lib/store\n\ngo 1.26.0\n\nreplace example.com/lib => ..\n\nrequire example.com/lib v0.0.0\n",
		"store/file.go": "// Package store greets louder.\npackage store\n\nimport \"example.com/lib\"\n\nfunc Greeting() string { return lib.Greeting() + \"!\" }\n",
		"cmd/a/go.mod": "module example.com/lib/cmd/a\n\ngo 1.26.0\n\nreplace (\n\texample.com/lib => ../..\n\texample.com/lib/store => ../../store\n)\n\n" +
			"require (\n\texample.com/lib v0.0.0\n\texample.com/lib/store v0.0.0\n)\n",
		"cmd/a/main.go": "// Command a greets.\npackage main\n\nimport (\n\t\"example.com/lib\"\n\t\"example.com/lib/store\"\n)\n\nfunc main() { print(lib.Greeting(), store.Greeting()) }\n",
	})
	commit(t, dir)
	if err := modules.Release(t.Context(), dir, version, proxy); err != nil {
		t.Fatal(err)
	}
	env := proxied(t, proxy)
	must(t, t.TempDir(), env, "go", "install", "example.com/lib/cmd/a@latest")
	if out := must(t, dir, nil, filepath.Join(strings.TrimPrefix(env[5], "GOBIN="), "a")); out != "hellohello!" {
		t.Errorf("the command printed %q", out)
	}
	must(t, filepath.Join(dir, "cmd/a"), append(env, "GOFLAGS=-mod=readonly -modcacherw"), "go", "build", "-o", os.DevNull, ".")
	commit(t, dir)
	archive := filepath.Join(t.TempDir(), "zip")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	m := module.Version{Path: "example.com/lib/store", Version: version}
	if err := errors.Join(zip.CreateFromVCS(file, m, dir, "HEAD", "store"), file.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := dirhash.HashZip(archive, dirhash.Hash1)
	sums, err2 := os.ReadFile(filepath.Join(dir, "cmd/a/go.sum"))
	if err := errors.Join(err, err2); err != nil || !strings.Contains(string(sums), m.Path+" "+version+" "+want+"\n") {
		t.Errorf("%v: no %s in\n%s", err, want, sums)
	}
}

// Without the release go install refuses the module, which is why there is one.
func TestReplaceIsRefusedByGoInstall(t *testing.T) {
	dir, proxy := repository(t), t.TempDir()
	mod := filepath.Join(dir, "cmd/a/go.mod")
	before, err := os.ReadFile(mod)
	if err != nil {
		t.Fatal(err)
	}
	if err := modules.Release(t.Context(), dir, version, proxy); err != nil {
		t.Fatal(err)
	}
	// The proxy gets the module as it was.
	served := filepath.Join(proxy, "example.com/lib/cmd/a/@v")
	write(t, served, map[string]string{version + ".mod": string(before)})
	must(t, dir, nil, "git", "checkout", "-q", "--", "cmd/a/go.mod")
	archive, err := os.Create(filepath.Join(served, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	m := module.Version{Path: "example.com/lib/cmd/a", Version: version}
	if err := errors.Join(zip.CreateFromDir(archive, m, filepath.Join(dir, "cmd/a")), archive.Close()); err != nil {
		t.Fatal(err)
	}
	out, ok := in(t, t.TempDir(), proxied(t, proxy), "go", "install", "example.com/lib/cmd/a@latest")
	if ok || !strings.Contains(out, "must not contain directives") {
		t.Errorf("go install succeeded: %v: %s", ok, out)
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, version, want string
		files               map[string]string
		commit              bool
	}{
		{"a version that is none", "1.2", "give one such as", nil, false},
		{"a version with build metadata", "v1.2.3+dirty", "give one such as", nil, false},
		{"changes that are not committed", version, "commit them first", map[string]string{"lib.go": "package lib\n"}, false},
		{"another replace directive", version, "not a module of this repository", map[string]string{
			"cmd/a/go.mod": "module example.com/lib/cmd/a\n\ngo 1.26.0\n\nreplace example.com/other => ../other\n",
		}, true},
		{"a nested module that needs another", version, "requires the nested module", map[string]string{
			"cmd/a/go.mod": "module example.com/lib/cmd/a\n\ngo 1.26.0\n\nrequire example.com/lib/bench v0.0.0\n",
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := repository(t)
			write(t, dir, c.files)
			if c.commit {
				commit(t, dir)
			}
			if err := modules.Release(t.Context(), dir, c.version, ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
