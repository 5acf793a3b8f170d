package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// nobody is the user of the image.
const nobody = "65532:65532"

// redis starts a Redis server of this test and returns its URL.
func redis(t *testing.T) string {
	t.Helper()
	needTool(t, "redis-server")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "Redis accepts connections", func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	})
	return "redis://" + address
}

// imageFiles unpacks the layer of the image of the release.
func imageFiles(t *testing.T) string {
	t.Helper()
	layout, root := t.TempDir(), t.TempDir()
	command(t, "tar", "-xf", artefact(t, ".image.tar"), "-C", layout)
	var images []struct{ Layers []string }
	if err := json.Unmarshal(read(t, filepath.Join(layout, "manifest.json")), &images); err != nil {
		t.Fatal(err)
	}
	command(t, "tar", "-xpzf", filepath.Join(layout, images[0].Layers[0]), "-C", root)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// checkImage uses the files of an image as its user, with Redis.
func checkImage(t *testing.T, root string) {
	t.Helper()
	j := jail{root: root, user: nobody, env: []string{"HOME=/tmp", "FENCELOCK_URL=" + redis(t)}}
	j.check(t, "/usr/bin/fencelock")
	out, code := j.run(t, "/usr/bin/fencelock", "doctor")
	if code != 0 {
		t.Errorf("doctor: exit %d: %s", code, out)
	}
}

func TestImageRunsWithRedis(t *testing.T) {
	needRoot(t)
	checkImage(t, imageFiles(t))
}

func TestImageTrustsPublicCertificates(t *testing.T) {
	rest, n := certificates(), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA {
			t.Errorf("certificate %d: %v, an authority: %v", n, err, err == nil && c.IsCA)
		}
		n++
	}
	if n < 100 {
		t.Errorf("%d certificates, want at least 100", n)
	}
}

// buildah runs buildah with a storage of its own.
type buildah struct{ dir string }

func (b buildah) run(t *testing.T, args ...string) string {
	t.Helper()
	all := append([]string{"--storage-driver", "vfs", "--root", b.dir + "/root", "--runroot", b.dir + "/run"}, args...)
	cmd := exec.CommandContext(context.Background(), "buildah", all...)
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = string(exit.Stderr)
		}
		t.Fatalf("buildah %q: %v\n%s%s", args, err, out, stderr)
	}
	return strings.TrimSpace(string(out))
}

// contents are the files, directories and modes of a root file system.
func contents(t *testing.T, root string) (all []string) {
	t.Helper()
	sums := listing(t, root)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		owner := info.Sys().(*syscall.Stat_t)
		all = append(all, fmt.Sprintf("%v %d:%d %s %s", info.Mode(), owner.Uid, owner.Gid, rel, sums[rel]))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The image of the release, read as an archive of OCI and of Docker, and the image that
// contrib/packaging/Containerfile makes have the same files, and run as the same user.
func TestImageIsThatOfTheContainerfile(t *testing.T) {
	needRoot(t)
	needTool(t, "buildah")
	b := buildah{t.TempDir()}
	b.run(t, "pull", "oci-archive:"+artefact(t, ".image.tar"))
	oci := b.run(t, "images", "-q")
	context := filepath.Join(t.TempDir(), "image")
	err := run(t.Context(), []string{"image", "-version", testVersion, "-o", context, "-targets", "linux/" + runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, "build-using-dockerfile", "--isolation", "chroot", "--platform", "linux/"+runtime.GOARCH, "-t", "built", context)
	docker := b.run(t, "pull", "docker-archive:"+artefact(t, ".image.tar"))
	want := contents(t, imageFiles(t))
	for name, image := range map[string]string{"oci-archive": oci, "docker-archive": docker, "Containerfile": "built"} {
		container := b.run(t, "from", "--pull-never", image)
		root := b.run(t, "mount", container)
		if got := contents(t, root); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		out := b.run(t, "run", "--isolation", "chroot", container, "--", "/usr/bin/fencelock", "version")
		checkVersion(t, out)
		var about struct {
			Docker struct {
				Config struct {
					User, WorkingDir string
					Entrypoint, Env  []string
				} `json:"config"`
			}
		}
		if err := json.Unmarshal([]byte(b.run(t, "inspect", container)), &about); err != nil {
			t.Fatal(err)
		}
		c := about.Docker.Config
		if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/fencelock"}) || !slices.Contains(c.Env, "PATH=/usr/bin") {
			t.Errorf("%s: the configuration is %+v", name, c)
		}
	}
}
