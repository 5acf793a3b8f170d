package pack

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// Download is what the install script and the formula know of a release.
type Download struct {
	Version  string            // without the v
	Releases string            // URL of the directory that has the files of this release
	Sums     map[string]string // of the archives, by their name
}

// Archive returns the name of the archive for a system, without .tar.gz.
func Archive(version, goos, arch string) string {
	return "fencelock_" + version + "_" + goos + "_" + arch
}

// Sum returns the checksum of the archive for a system. It is an error if the release has none.
func (d Download) Sum(goos, arch string) (string, error) {
	name := Archive(d.Version, goos, arch) + ".tar.gz"
	if d.Sums[name] == "" {
		return "", fmt.Errorf("the release has no %s", name)
	}
	return d.Sums[name], nil
}

// URL returns where the archive for a system is.
func (d Download) URL(goos, arch string) string {
	return d.Releases + "/" + Archive(d.Version, goos, arch) + ".tar.gz"
}

// Table returns a line for each archive: its name and checksum.
func (d Download) Table() string { return strings.TrimSuffix(string(Sums(d.Sums)), "\n") }

// InstallScript returns install.sh, a script for sh that knows the checksums of the release.
func InstallScript(d Download) ([]byte, error) { return fill("install.sh.tmpl", d) }

// Formula returns fencelock.rb, the formula for Homebrew.
func Formula(d Download) ([]byte, error) { return fill("fencelock.rb.tmpl", d) }

func fill(name string, d Download) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, d)
	return out.Bytes(), err
}
