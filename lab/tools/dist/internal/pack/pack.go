// Package pack writes the files of a release that need nothing but the standard library: tar
// archives, container images, SBOMs, checksums, the install script and the Homebrew formula. The
// same input gives the same bytes.
package pack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A File is one file or directory of an archive or package.
type File struct {
	Path string      // slash-separated, without a leading slash
	Mode fs.FileMode // permission bits, and fs.ModeDir and fs.ModeSticky
	Data []byte
}

// Tree is the files of an archive. Parent directories need no entry.
type Tree []File

// Add adds a file with the permissions 0644, or 0755 if it lies in a directory bin.
func (t *Tree) Add(name string, data []byte) {
	mode := fs.FileMode(0o644)
	if path.Base(path.Dir(name)) == "bin" {
		mode = 0o755
	}
	*t = append(*t, File{Path: name, Mode: mode, Data: data})
}

// Below returns the same files in the directory dir.
func (t Tree) Below(dir string) Tree {
	moved := slices.Clone(t)
	for i := range moved {
		moved[i].Path = path.Join(dir, moved[i].Path)
	}
	return moved
}

// complete returns the files in order, with an entry for each parent directory.
func (t Tree) complete() Tree {
	entries := map[string]File{}
	for _, f := range t {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if _, ok := entries[dir]; !ok {
				entries[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			}
		}
		entries[f.Path] = f
	}
	return slices.SortedFunc(maps.Values(entries), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
}

// Write writes the files into the directory dir of the file system.
func (t Tree) Write(dir string) error {
	for _, f := range t.complete() {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if f.Mode.IsDir() {
			if err := os.MkdirAll(name, 0o755); err != nil {
				return err
			}
		} else if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(name, f.Mode&^fs.ModeDir); err != nil { // the umask does not count
			return err
		}
	}
	return nil
}

// Tar returns the files as a tar archive. They belong to root and were changed at the time when.
func (t Tree) Tar(when time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range t.complete() {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode.Perm()), Size: int64(len(f.Data)),
			ModTime: when, Format: tar.FormatUSTAR, Uname: "root", Gname: "root",
		}
		if f.Mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if f.Mode.IsDir() {
			h.Typeflag, h.Name, h.Size = tar.TypeDir, f.Path+"/", 0
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// Gzip compresses data. The result has no name and no time in it.
func Gzip(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// Sum returns the SHA-256 of data in hexadecimal digits.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Sums returns the lines of SHA256SUMS for the named data, as sha256sum writes and checks them.
func Sums(sums map[string]string) []byte {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&out, "%s  %s\n", sums[name], name)
	}
	return []byte(out.String())
}
