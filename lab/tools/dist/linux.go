package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // each registers its format
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

// linuxPackages writes the packages of each format. They have no scripts: to install one copies
// files, and to remove it deletes them.
func (r *release) linuxPackages(w *writer, stage, arch string, tree pack.Tree) error {
	if err := tree.Write(stage); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm", "apk"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := r.packageInfo(stage, arch, format, tree)
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		var out bytes.Buffer
		if err := packager.Package(info, &out); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := w.write(pack.Archive(r.number(), "linux", arch)+"."+format, out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// packageInfo describes a package of one format.
func (r *release) packageInfo(stage, arch, format string, tree pack.Tree) *nfpm.Info {
	var contents files.Contents
	for _, f := range tree {
		contents = append(contents, &files.Content{
			Source: filepath.Join(stage, filepath.FromSlash(f.Path)), Destination: destination(format, f.Path),
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.Mode, MTime: r.when},
		})
	}
	info := &nfpm.Info{
		Name: "fencelock", Arch: arch, Platform: "linux", Version: r.version, Release: "1", Section: "utils", Priority: "optional",
		Maintainer: "The fencelock authors <fencelock@users.noreply.github.com>", Homepage: homepage, License: "Apache-2.0",
		Description: "Locks that many processes share, with fencing tokens\n" +
			"fencelock runs a command while it holds a lock: in files of one host, in Redis,\n" +
			"in several Redis servers (Redlock) or in PostgreSQL.",
		MTime: r.when, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Umask: 0o022,
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "Locks that many processes share, with fencing tokens"},
		},
	}
	if format != "apk" { // TLS to Redis and PostgreSQL needs the certificates of the system
		info.Recommends = []string{"ca-certificates"}
	}
	return nfpm.WithDefaults(info)
}

// destination returns where a file goes in a package. Debian has its own places for the completion
// of zsh and for the licence.
func destination(format, name string) string {
	if format == "deb" {
		name = strings.Replace(name, "share/zsh/site-functions/", "share/zsh/vendor-completions/", 1)
		name = strings.Replace(name, "share/doc/fencelock/LICENSE", "share/doc/fencelock/copyright", 1)
	}
	return path.Join("/usr", name)
}

// imageRoot returns the files of a container image: the command, certificates, a user without
// rights, and /tmp.
func imageRoot(binary []byte, certificates []byte) pack.Tree {
	tree := pack.Tree{{Path: "tmp", Mode: os.ModeDir | os.ModeSticky | 0o777}}
	tree.Add("usr/bin/fencelock", binary)
	tree.Add("etc/ssl/certs/ca-certificates.crt", certificates)
	tree.Add("etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"))
	tree.Add("etc/group", []byte("root:x:0:\nnonroot:x:65532:\n"))
	return tree
}
