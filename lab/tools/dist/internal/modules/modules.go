// Package modules prepares the nested modules of the repository for a release. While people work on
// them they use the root module next to them, by a replace directive. go install MODULE@VERSION
// refuses a module with such a directive, and other users of the module do not see it.
package modules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// unreleased are the folders of modules that nobody imports or installs.
var unreleased = []string{"lab", "examples", "tools"}

// local is a module of the repository.
type local struct {
	dir     string // slash-separated, below the root
	file    *modfile.File
	archive string // its file, as a proxy serves it
}

func (l local) path() string { return l.file.Module.Mod.Path }

// Release makes the released nested modules below root require the published versions of the root
// module and of each other: it sets the version in go.mod, drops the replace directives, and adds
// the checksums to go.sum. Those of the root module are of the commit that is checked out, which its
// tag must name. Those of the nested modules are of that commit with the changes that Release makes.
// Release prints the tags that publish the modules.
//
// If proxy is not "", Release also writes the root module and the nested ones to that directory, as
// GOPROXY=file://DIRECTORY reads them.
func Release(ctx context.Context, root, version, proxy string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("version %q: give one such as -version v1.2.3", version)
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("%s has changes: commit them first, since the checksums are those of the commit", root)
	}
	work, err := os.MkdirTemp("", "fencelock-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p := publication{root: root, work: work, version: version, sums: map[string][]string{}}
	self, err := readModule(root, ".")
	if err != nil {
		return err
	}
	p.self = self.path()
	if err := p.pack(ctx, &self, "HEAD", ""); err != nil {
		return err
	}
	left, err := released(ctx, root)
	if err != nil {
		return err
	}
	all := []local{self}
	tags := []string{version}
	for len(left) > 0 { // one that requires no other first
		i := max(0, slices.IndexFunc(left, func(l local) bool { return !l.requires(left) }))
		next := left[i]
		left = slices.Delete(left, i, i+1)
		if err := p.publish(ctx, &next); err != nil {
			return fmt.Errorf("%s: %w", next.dir, err)
		}
		all = append(all, next)
		tags = append(tags, next.dir+"/"+version)
	}
	for _, l := range all {
		if proxy == "" {
			break
		}
		if err := l.serve(proxy, root, version); err != nil {
			return err
		}
	}
	slices.Sort(tags[1:])
	fmt.Printf("%s is the tag of the commit that is checked out.\nCommit the changes of go.mod and go.sum; "+
		"the tags of that commit are\n  %s\n", tags[0], strings.Join(tags[1:], "\n  "))
	return nil
}

// requires reports whether a module requires one of the others.
func (l local) requires(others []local) bool {
	return slices.ContainsFunc(l.file.Require, func(r *modfile.Require) bool {
		return slices.ContainsFunc(others, func(o local) bool { return o.path() == r.Mod.Path })
	})
}

// publication is the version that is published.
type publication struct {
	root    string
	work    string // a directory for archives
	self    string // the path of the root module
	version string
	sums    map[string][]string // the lines of go.sum for each module that has been packed
}

// pack writes the archive of a module at a commit or tree of git, and computes its checksums.
func (p publication) pack(ctx context.Context, l *local, revision, dir string) error {
	l.archive = filepath.Join(p.work, fmt.Sprint(len(p.sums)))
	m := module.Version{Path: l.path(), Version: p.version}
	archive, err := os.Create(l.archive)
	if err != nil {
		return err
	}
	if err := errors.Join(zip.CreateFromVCS(archive, m, p.root, revision, dir), archive.Close()); err != nil {
		return err
	}
	p.sums[m.Path], err = checksums(filepath.Join(p.root, filepath.FromSlash(l.dir), "go.mod"), m, l.archive)
	return err
}

// checksums returns the lines of go.sum for a module.
func checksums(modFile string, m module.Version, archive string) ([]string, error) {
	sum, err := dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(modFile) })
	if err != nil {
		return nil, err
	}
	return []string{m.Path + " " + m.Version + " " + sum, m.Path + " " + m.Version + "/go.mod " + modSum}, nil
}

// released returns the nested modules that users import or install.
func released(ctx context.Context, root string) (all []local, err error) {
	files, err := git(ctx, root, "ls-files", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(files) {
		dir := path.Dir(name)
		top, _, _ := strings.Cut(dir, "/")
		if dir == "." || slices.Contains(unreleased, top) || slices.Contains(strings.Split(dir, "/"), "testdata") {
			continue
		}
		n, err := readModule(root, dir)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func readModule(root, dir string) (local, error) {
	name := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return local{}, err
	}
	file, err := modfile.Parse(name, text, nil)
	return local{dir: dir, file: file}, err
}

// publish writes go.mod and go.sum of a nested module, and packs it.
func (p publication) publish(ctx context.Context, l *local) error {
	sums := map[string][]string{}
	for _, r := range slices.Clone(l.file.Require) {
		lines, ours := p.sums[r.Mod.Path]
		if !ours && strings.HasPrefix(r.Mod.Path, p.self+"/") {
			return fmt.Errorf("it requires the nested module %s, which is not released, or requires this one", r.Mod.Path)
		}
		if !ours {
			continue
		}
		sums[r.Mod.Path] = lines
		if err := l.file.AddRequire(r.Mod.Path, p.version); err != nil {
			return err
		}
	}
	for _, r := range slices.Clone(l.file.Replace) {
		if _, ours := p.sums[r.Old.Path]; !ours {
			return fmt.Errorf("it replaces %s, which is not a module of this repository: users would not get that", r.Old.Path)
		}
		if err := l.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	dir := filepath.Join(p.root, filepath.FromSlash(l.dir))
	if len(sums) > 0 {
		l.file.Cleanup()
		text, err := l.file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644); err != nil {
			return err
		}
		if err := addSums(filepath.Join(dir, "go.sum"), sums); err != nil {
			return err
		}
	}
	tree, err := p.tree(ctx, l.dir)
	if err != nil {
		return err
	}
	return p.pack(ctx, l, tree, l.dir)
}

// tree returns the tree of git that the commit has with the present files of a directory. It does
// not change the index.
func (p publication) tree(ctx context.Context, dir string) (string, error) {
	index := "GIT_INDEX_FILE=" + filepath.Join(p.work, "index")
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "--", dir}} {
		if _, err := gitWith(ctx, p.root, index, args...); err != nil {
			return "", err
		}
	}
	return gitWith(ctx, p.root, index, "write-tree")
}

// addSums replaces the lines of modules in a go.sum.
func addSums(name string, sums map[string][]string) error {
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(old)) {
		path, _, _ := strings.Cut(line, " ")
		if _, ours := sums[path]; !ours {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	for _, own := range sums {
		lines = append(lines, own...)
	}
	slices.Sort(lines)
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// serve writes the files of the module as a proxy serves them.
func (l local) serve(proxy, root, version string) error {
	escaped, err := module.EscapePath(l.path())
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(l.dir), "go.mod"))
	if err != nil {
		return err
	}
	archive, err := os.ReadFile(l.archive)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod, version + ".zip": archive} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	return gitWith(ctx, dir, "", args...)
}

// gitWith runs git with a variable of the environment.
func gitWith(ctx context.Context, dir, env string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	if env != "" {
		cmd.Env = append(os.Environ(), env)
	}
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
