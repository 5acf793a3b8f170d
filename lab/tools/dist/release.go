package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

// allTargets are the systems that a release has archives for.
var allTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "freebsd/amd64", "freebsd/arm64"}

// homepage is where the project is, and its releases.
const homepage = "https://github.com/fencelock/fencelock"

// release is what is built, and from which commit.
type release struct {
	source  string // the directory of the root module
	version string // with the v
	commit  string
	when    time.Time
	common  pack.Tree // what the archives of all systems have, below the prefix
}

// newRelease reads the version, the commit and the time from git and SOURCE_DATE_EPOCH.
func newRelease(ctx context.Context, source, version string) (*release, error) {
	r := &release{source: source, version: version}
	head, err := output(ctx, source, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	r.commit = commit
	committed, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	r.when = time.Unix(committed, 0).UTC()
	if r.version == "" {
		if r.version, err = describe(ctx, source, r.when, commit); err != nil {
			return nil, err
		}
	}
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != strings.TrimSuffix(r.version, semver.Build(r.version)) {
		return nil, fmt.Errorf("version %q: give one such as v1.2.3", r.version)
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		r.when = time.Unix(n, 0).UTC()
	}
	return r, nil
}

// describe returns the version tag of the commit, or a pseudo-version. "+dirty" says that files
// differ from the commit.
func describe(ctx context.Context, source string, when time.Time, commit string) (string, error) {
	tags, err := output(ctx, source, nil, "git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*")
	if err != nil {
		return "", err
	}
	version := module.PseudoVersion("v0", "", when, commit[:12])
	if found := strings.Fields(tags); len(found) > 0 {
		version = slices.MaxFunc(found, semver.Compare)
	}
	changed, err := output(ctx, source, nil, "git", "status", "--porcelain")
	if err == nil && changed != "" {
		version += "+dirty"
	}
	return version, err
}

// releases returns the URL of the directory that has the files of this release.
func (r *release) releases() string { return homepage + "/releases/download/" + r.version }

// number returns the version without the v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// packages writes the files of a release into dir, which it replaces.
func (r *release) packages(ctx context.Context, dir string, targets []string) error {
	work, err := os.MkdirTemp("", "fencelock-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := r.prepare(ctx, work); err != nil {
		return err
	}
	final, dir := dir, dir+".part"
	if err := mayReplace(final, "SHA256SUMS", "image/Containerfile"); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	w := &writer{dir: dir, sums: map[string]string{}}
	archives := map[string]string{}
	for _, target := range targets {
		goos, arch, ok := strings.Cut(target, "/")
		if !ok {
			return fmt.Errorf("target %q: give one such as linux/amd64", target)
		}
		name, err := r.target(ctx, w, work, goos, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		archives[name] = w.sums[name]
	}
	d := pack.Download{Version: r.number(), Releases: r.releases(), Sums: archives}
	script, err := pack.InstallScript(d)
	if err != nil {
		return err
	}
	if err := w.write("install.sh", script); err != nil {
		return err
	}
	if len(archives) == len(allTargets) { // the formula names several
		formula, err := pack.Formula(d)
		if err != nil {
			return err
		}
		if err := w.write("fencelock.rb", formula); err != nil {
			return err
		}
	}
	if err := w.write("SHA256SUMS", pack.Sums(w.sums)); err != nil {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(dir, final)
}

// mayReplace returns an error if dir is neither empty nor what an earlier run wrote, which has one
// of the files marks.
func mayReplace(dir string, marks ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(mark))); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s has files, and not those of an earlier run: remove it, or choose another directory with -o", dir)
}

// target writes all files for one system and returns the name of its archive.
func (r *release) target(ctx context.Context, w *writer, work, goos, arch string) (string, error) {
	binary, err := r.build(ctx, work, goos, arch)
	if err != nil {
		return "", err
	}
	tree, err := r.tree(binary)
	if err != nil {
		return "", err
	}
	name := pack.Archive(r.number(), goos, arch)
	tarball, err := tree.Below(name).Tar(r.when)
	if err != nil {
		return "", err
	}
	if tarball, err = pack.Gzip(tarball); err != nil {
		return "", err
	}
	binary.Name, binary.Version, binary.Releases = name, r.version, r.releases()
	sbom, err := pack.SBOM(binary, r.when)
	if err != nil {
		return "", err
	}
	if err := cmp.Or(w.write(name+".tar.gz", tarball), w.write(name+".spdx.json", sbom)); err != nil {
		return "", err
	}
	if goos != "linux" {
		return name + ".tar.gz", nil
	}
	image, err := r.image(arch, binary.Data).Archive()
	if err != nil {
		return "", err
	}
	if err := w.write(name+".image.tar", image); err != nil {
		return "", err
	}
	return name + ".tar.gz", r.linuxPackages(w, filepath.Join(work, name), arch, tree)
}

// writer writes files into a directory and keeps their checksums.
type writer struct {
	dir  string
	sums map[string]string
}

func (w *writer) write(name string, data []byte) error {
	w.sums[name] = pack.Sum(data)
	mode := os.FileMode(0o644)
	if filepath.Ext(name) == ".sh" {
		mode = 0o755
	}
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	fmt.Printf("%s  %s\n", w.sums[name], name)
	return os.Chmod(path, mode)
}

// cleanEnv is the environment of go for a build that depends on the source and on Go alone.
func cleanEnv(more ...string) []string {
	env := map[string]string{
		"CGO_ENABLED": "0", "GOFLAGS": "", "GOENV": "off", "GOWORK": "off", "GOEXPERIMENT": "", "GODEBUG": "",
		"GOAMD64": "v1", "GOARM64": "v8.0", "GOOS": "", "GOARCH": "",
	}
	kept := []string{
		"PATH", "HOME", "TMPDIR", "GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK",
		"GOPRIVATE", "GOINSECURE", "GOTOOLCHAIN", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
	}
	for _, name := range kept {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for _, pair := range more {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

var lineEnd = regexp.MustCompile(`\n+$`)

// output runs a command in dir and returns what it printed. A nil env is that of this process.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return lineEnd.ReplaceAllString(string(out), ""), nil
}
