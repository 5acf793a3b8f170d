package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sourceCopy returns a clone of the repository with the files as they are checked out.
func sourceCopy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a copy of the source")
	command(t, "git", "clone", "-q", "--shared", "../../..", dir)
	command(t, "sh", "-c", `cd ../../.. && git ls-files -z --cached --others --exclude-standard | `+
		`tar --ignore-failed-read --null -T - -cf - 2>/dev/null | tar -xf - -C "$0"`, dir)
	return dir
}

// The released nested modules of this repository are installed and imported from a proxy in a
// directory. What they need of others comes from the module cache of this machine, or as usual.
func TestNestedModulesOfTheRelease(t *testing.T) {
	source, proxy := sourceCopy(t), filepath.Join(t.TempDir(), "proxy")
	command(t, "git", "-C", source, "add", "-A")
	command(t, "git", "-C", source, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--allow-empty", "-qm", "as checked out")
	if err := run(t.Context(), []string{"modules", "-root", source, "-version", testVersion, "-proxy", proxy}); err != nil {
		t.Fatal(err)
	}
	usual := strings.Fields(command(t, "go", "env", "GOMODCACHE", "GOPROXY"))
	home := t.TempDir()
	goIn := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+filepath.Join(usual[0], "cache/download")+","+usual[1], "GONOSUMDB=*",
			"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GOMODCACHE="+filepath.Join(home, "mod"), "GOBIN="+filepath.Join(home, "bin"), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	goIn(home, "install", "github.com/fencelock/fencelock/cmd/fencelock@latest")
	if out := command(t, filepath.Join(home, "bin/fencelock"), "version"); !strings.HasPrefix(out, "fencelock "+testVersion+" ") {
		t.Errorf("version printed %q", out)
	}
	goIn(home, "install", "github.com/fencelock/fencelock/cmd/fencelock-all@latest")
	if out := command(t, filepath.Join(home, "bin/fencelock-all"), "version"); !strings.HasPrefix(out, "fencelock "+testVersion+" ") {
		t.Errorf("version of fencelock-all printed %q", out)
	}
	goIn(home, "install", "github.com/fencelock/fencelock/cmd/mandoc@latest")
	command(t, filepath.Join(home, "bin/mandoc"), t.TempDir())
	goIn(home, "install", "github.com/fencelock/fencelock/cmd/fencelockvet@latest")
	command(t, filepath.Join(home, "bin/fencelockvet"), "help")

	user := t.TempDir()
	program := "package main\n\nimport (\n"
	nested := []string{"cron/schedulers", "stores/etcdrecords", "fence/fencegrpc", "stores/natsrecords", "observe/otelfencelock", "observe/promfencelock"}
	for _, dir := range nested {
		if dir == "cron/schedulers" {
			dir += "/robfigcron" // the module has no package of its own
		}
		program += "\t_ \"github.com/fencelock/fencelock/" + dir + "\"\n"
	}
	program += ")\n\nfunc main() {}\n"
	for name, text := range map[string]string{"go.mod": "module example.com/user\n\ngo 1.26.0\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(user, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range nested {
		goIn(user, "get", "github.com/fencelock/fencelock/"+dir+"@latest")
	}
	goIn(user, "get", ".") // the checksums of modules of which a later one needed another version
	used := goIn(user, "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".")
	for _, dir := range append(nested, "") {
		want := strings.TrimSuffix("github.com/fencelock/fencelock/"+dir, "/") + " " + testVersion
		if !strings.Contains(used, want+"\n") {
			t.Errorf("%s is not used", want)
		}
	}
	// At the commit of the release the modules load with what their go.sum has.
	for _, dir := range append(nested, "cmd", "cmd/fencelockvet") {
		goIn(filepath.Join(source, dir), "list", "-mod=readonly", "-deps", "./...")
	}
}
