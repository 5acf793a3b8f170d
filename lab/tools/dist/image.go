package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/fencelock/fencelock/lab/tools/dist/internal/pack"
)

// image returns the container image of a release for Linux. contrib/packaging/Containerfile makes the same.
func (r *release) image(arch string, binary []byte) pack.Image {
	return pack.Image{
		OS: "linux", Arch: arch, Root: imageRoot(binary, certificates()), User: "65532:65532",
		Entrypoint: []string{"/usr/bin/fencelock"}, Env: []string{"PATH=/usr/bin", "HOME=/tmp"},
		Name: "fencelock", Tag: strings.ReplaceAll(r.number(), "+", "-"), When: r.when,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "fencelock",
			"org.opencontainers.image.source":   homepage,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
		},
	}
}

// imageContext writes the build context of contrib/packaging/Containerfile into dir, which it replaces.
func (r *release) imageContext(ctx context.Context, dir string, targets []string) error {
	work, err := os.MkdirTemp("", "fencelock-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := mayReplace(dir, "Containerfile"); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, target := range targets {
		goos, arch, _ := strings.Cut(target, "/")
		if goos != "linux" {
			continue
		}
		b, err := r.build(ctx, work, goos, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		if err := r.image(arch, b.Data).Root.Below(path.Join("rootfs", target)).Write(dir); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(r.source, "contrib/packaging/Containerfile"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "Containerfile"), text, 0o644)
}

// certificates returns the certificates of Mozilla's list, as PEM. The version of the module
// golang.org/x/crypto/x509roots/fallback in go.mod says of which day. Those that are trusted under
// conditions only are left out: a PEM file cannot state a condition.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}
