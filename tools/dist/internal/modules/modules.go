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
var unreleased = []string{"bench", "examples", "tools"}

// nested is a nested module.
type nested struct {
	dir  string // slash-separated, below the root
	file *modfile.File
}

// Release makes the released nested modules below root require the published version of the root
// module: it sets the version in go.mod, drops the replace directive, and adds the checksums of the
// root module to go.sum. The checksums are those of the commit that is checked out, which the tag
// of the root module must name. Release prints the tags that publish the modules.
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
	mod, err := readModule(root, ".")
	if err != nil {
		return err
	}
	self := module.Version{Path: mod.file.Module.Mod.Path, Version: version}
	archive, err := os.CreateTemp("", "fencelock-module-*.zip")
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	if err := errors.Join(zip.CreateFromVCS(archive, self, root, "HEAD", ""), archive.Close()); err != nil {
		return err
	}
	sums, err := checksums(root, self, archive.Name())
	if err != nil {
		return err
	}
	all, err := released(ctx, root)
	if err != nil {
		return err
	}
	tags := []string{version}
	for _, n := range all {
		if err := n.publish(root, self, sums); err != nil {
			return fmt.Errorf("%s: %w", n.dir, err)
		}
		tags = append(tags, n.dir+"/"+version)
	}
	if proxy != "" {
		if err := writeProxy(root, proxy, self, archive.Name(), all); err != nil {
			return err
		}
	}
	fmt.Printf("%s is the tag of the commit that is checked out.\nCommit the changes of go.mod and go.sum; "+
		"the tags of that commit are\n  %s\n", tags[0], strings.Join(tags[1:], "\n  "))
	return nil
}

// checksums returns the lines of go.sum for the root module.
func checksums(root string, self module.Version, archive string) ([]string, error) {
	sum, err := dirhash.HashZip(archive, dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(root, "go.mod")) })
	if err != nil {
		return nil, err
	}
	return []string{self.Path + " " + self.Version + " " + sum, self.Path + " " + self.Version + "/go.mod " + modSum}, nil
}

// released returns the nested modules that users import or install.
func released(ctx context.Context, root string) (all []nested, err error) {
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

func readModule(root, dir string) (nested, error) {
	name := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nested{}, err
	}
	file, err := modfile.Parse(name, text, nil)
	return nested{dir, file}, err
}

// publish writes go.mod and go.sum for the version of the root module self.
func (n nested) publish(root string, self module.Version, sums []string) error {
	needs := false
	for _, r := range n.file.Require {
		if r.Mod.Path != self.Path && strings.HasPrefix(r.Mod.Path, self.Path+"/") {
			return fmt.Errorf("it requires the nested module %s, whose checksum is not known yet", r.Mod.Path)
		}
		needs = needs || r.Mod.Path == self.Path
	}
	for _, r := range slices.Clone(n.file.Replace) {
		if r.Old.Path != self.Path {
			return fmt.Errorf("it replaces %s, which is not the root module: users would not get that", r.Old.Path)
		}
		if err := n.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	if !needs {
		return nil
	}
	if err := n.file.AddRequire(self.Path, self.Version); err != nil {
		return err
	}
	n.file.Cleanup()
	text, err := n.file.Format()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, filepath.FromSlash(n.dir))
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), text, 0o644); err != nil {
		return err
	}
	return addSums(filepath.Join(dir, "go.sum"), self.Path, sums)
}

// addSums replaces the lines of a module in a go.sum.
func addSums(name, modulePath string, sums []string) error {
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := slices.Clone(sums)
	for line := range strings.Lines(string(old)) {
		if !strings.HasPrefix(line, modulePath+" ") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(lines)
	return os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// writeProxy writes the modules as a proxy serves them.
func writeProxy(root, proxy string, self module.Version, archive string, all []nested) error {
	data, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	if err := serve(proxy, self, filepath.Join(root, "go.mod"), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}); err != nil {
		return err
	}
	for _, n := range all {
		m := module.Version{Path: n.file.Module.Mod.Path, Version: self.Version}
		dir := filepath.Join(root, filepath.FromSlash(n.dir))
		if err := serve(proxy, m, filepath.Join(dir, "go.mod"), func(w io.Writer) error { return zip.CreateFromDir(w, m, dir) }); err != nil {
			return err
		}
	}
	return nil
}

// serve writes the files of one version of a module.
func serve(proxy string, m module.Version, modFile string, archive func(io.Writer) error) error {
	escaped, err := module.EscapePath(m.Path)
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
	}{m.Version, time.Unix(0, 0).UTC()})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(modFile)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(m.Version + "\n"), m.Version + ".info": info, m.Version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	w, err := os.Create(filepath.Join(dir, m.Version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(archive(w), w.Close())
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
