package minio

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/awslogin"
	"github.com/fencelock/fencelock/internal/freeze"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/nemesistest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// The login of the servers' administrator.
const user, password = "administrator", "s3cret-s3cret"

func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", user)
	os.Setenv("AWS_SECRET_ACCESS_KEY", password)
	os.Setenv("AWS_REGION", "us-east-1")
	nemesistest.ServeWorker(open)
	proc.Main(map[string]func(string) driver.Engine{"s3": open})
	var err error
	if programs, err = os.MkdirTemp("", "fencelock-minio-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// programs is the directory of the programs that tests have built.
var programs string

// open opens the locks whose records are at a place, as recordsAt describes it.
func open(where string) driver.Engine { return recordlock.New(recordsAt(where), nil) }

// recordsAt returns the records at an endpoint, a space, and a prefix.
func recordsAt(where string) *s3records.Records {
	endpoint, prefix, _ := strings.Cut(where, " ")
	return s3records.New("locks", &s3records.Config{Endpoint: endpoint, Prefix: prefix})
}

// program builds a program once, and returns its file.
func program(t *testing.T, name, from, pkg string, tags ...string) string {
	t.Helper()
	file := filepath.Join(programs, name)
	build := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", file}, tags...), pkg)...)
	build.Dir = from
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return file
}

var minio struct {
	sync.Mutex // guards file
	file       string
}

// build returns the file of MinIO, or that in FENCELOCK_MINIO.
func build(t *testing.T) string {
	t.Helper()
	if file := os.Getenv("FENCELOCK_MINIO"); file != "" {
		return file
	}
	minio.Lock()
	defer minio.Unlock()
	if minio.file == "" {
		minio.file = program(t, "minio", ".", "github.com/minio/minio")
	}
	return minio.file
}

// server is a MinIO with one drive and the bucket locks.
type server struct {
	program, dir, addr string
	cmd                *exec.Cmd
}

// start starts a server, which ends with the test.
func start(t testing.TB, program string) *server {
	t.Helper()
	s := &server{program: program, dir: hosttest.Dir(t, "fencelock-minio-data-"), addr: fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))}
	if err := os.Mkdir(filepath.Join(s.dir, "locks"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	t.Cleanup(s.kill)
	return s
}

func (s *server) url() string { return "http://" + s.addr }

// run starts the process and waits until it serves requests.
func (s *server) run(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.program, "server", s.dir, "--address", s.addr, "--quiet")
	s.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+user, "MINIO_ROOT_PASSWORD="+password, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "CI=true")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(s.url() + "/minio/health/ready")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			s.kill()
			t.Fatalf("MinIO does not start: %v\n%s", err, log.String())
		}
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// do sends a signed request to a service of the server, and returns the body of its answer. A server
// that has just started may refuse it for a while.
func (s *server) do(t testing.TB, service, method, path, body string) string {
	t.Helper()
	for range 100 {
		status, text := s.ask(t, service, method, path, body)
		switch {
		case status/100 == 2:
			return text
		case status != http.StatusServiceUnavailable:
			t.Fatalf("%s %s: %d\n%s", method, path, status, text)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s %s: the server is not ready", method, path)
	return ""
}

// ask sends a signed request.
func (s *server) ask(t testing.TB, service, method, path, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if service == "sts" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	hash := sha256.Sum256([]byte(body))
	if err := awslogin.New(http.DefaultClient, service, "us-east-1").Sign(r, hex.EncodeToString(hash[:])); err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

func (s *server) freeze(t testing.TB) {
	if err := freeze.Process(s.cmd.Process); err != nil {
		t.Fatal(err)
	}
}

func (s *server) thaw(t testing.TB) {
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
