package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

const versionPackage = "github.com/fencelock/fencelock/cmd/internal/cli"

// build compiles the command for a system: static, without the paths of this machine.
func (r *release) build(ctx context.Context, work, goos, arch string) (pack.Binary, error) {
	name := filepath.Join(work, "bin", goos+"-"+arch)
	set := fmt.Sprintf("-X %[1]s.releaseVersion=%[2]s -X %[1]s.releaseCommit=%[3]s", versionPackage, r.version, r.commit)
	_, err := output(ctx, filepath.Join(r.source, "cmd"), cleanEnv("GOOS="+goos, "GOARCH="+arch), "go", "build", "-mod=readonly", "-trimpath", "-tags=nethttpomithttp2",
		"-buildvcs=false", "-ldflags=-s -w -buildid= "+set, "-o", name, "./fencelock")
	if err != nil {
		return pack.Binary{}, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return pack.Binary{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	return pack.Binary{Data: data, Info: info}, err
}

// prepare makes what all systems have in common: manual pages, completions and examples.
func (r *release) prepare(ctx context.Context, work string) error {
	if err := r.manual(ctx, filepath.Join(work, "man")); err != nil {
		return err
	}
	if _, err := r.build(ctx, work, runtime.GOOS, runtime.GOARCH); err != nil {
		return err
	}
	command := filepath.Join(work, "bin", runtime.GOOS+"-"+runtime.GOARCH)
	for shell, file := range map[string]string{
		"bash": "share/bash-completion/completions/fencelock",
		"zsh":  "share/zsh/site-functions/_fencelock",
		"fish": "share/fish/vendor_completions.d/fencelock.fish",
	} {
		script, err := output(ctx, work, []string{"HOME=" + work}, command, "completion", shell)
		if err != nil {
			return err
		}
		r.common.Add(file, []byte(script+"\n"))
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		text, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return err
		}
		r.common.Add("share/doc/fencelock/"+name, text)
	}
	return r.examples()
}

// manual adds the manual pages, compressed. The name of a page and its date come from mandoc.
func (r *release) manual(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	env := cleanEnv("SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.when.Unix(), 10))
	if _, err := output(ctx, filepath.Join(r.source, "cmd/mandoc"), env, "go", "run", ".", dir); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) == 0 {
		return errors.Join(err, errors.New("mandoc wrote no pages"))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if text, err = pack.Gzip(text); err != nil {
			return err
		}
		r.common.Add("share/man/man1/"+filepath.Base(page)+".gz", text)
	}
	return nil
}

// examples adds the units, manifests and crontabs of contrib/packaging/.
func (r *release) examples() error {
	root := os.DirFS(filepath.Join(r.source, "contrib", "packaging"))
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err == nil {
			r.common.Add(path.Join("share/doc/fencelock/examples", name), text)
		}
		return err
	})
}

// tree returns the files of a system below the prefix, such as /usr.
func (r *release) tree(b pack.Binary) (pack.Tree, error) {
	licences, err := licences(r.source, b)
	if err != nil {
		return nil, err
	}
	tree := slices.Clone(r.common)
	tree.Add("bin/fencelock", b.Data)
	tree.Add("share/doc/fencelock/THIRD-PARTY-LICENSES", licences)
	return tree, nil
}

// licences returns the licences of Go and of the modules that are linked into a binary.
func licences(source string, b pack.Binary) ([]byte, error) {
	goroot, err := output(context.Background(), source, cleanEnv(), "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := addLicences(&out, "Go, "+b.Info.GoVersion, goroot); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range b.Modules() {
		args = append(args, m.Path+"@"+m.Version)
	}
	list, err := output(context.Background(), source, cleanEnv(), "go", args...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(list)); d.More(); {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		if err := addLicences(&out, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// addLicences adds the licence files of the directory of a module. It has to have one.
func addLicences(out *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		word, _, _ := strings.Cut(name, ".")
		if !e.Type().IsRegular() || !slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"}, word) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "==== %s: %s\n\n%s\n\n", title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s: %s has no licence file", title, dir)
	}
	return nil
}
