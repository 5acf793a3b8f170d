//go:build linux

package board

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// fleet is the service, with several instances on one Redis.
type fleet struct {
	program string
	redis   *redistest.Redis
	places  []string // addresses of probes and metrics that are scraped
	free    []string // those that are not in use

	mu      sync.Mutex
	serving []string // addresses of the API of instances that get requests
	request atomic.Int64
	answers [600]atomic.Int64 // by status
}

// instance is a process of the service.
type instance struct {
	cmd        *exec.Cmd
	api, admin string
	log        string // its file
}

func newFleet(t *testing.T, places int) *fleet {
	t.Helper()
	f := &fleet{program: filepath.Join(t.TempDir(), "service"), redis: redistest.StartRedis(t)}
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-w", "-o", f.program, ".")
	build.Dir = "../../examples/service"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range places {
		f.places = append(f.places, freeAddr(t))
	}
	f.free = f.places
	return f
}

// start starts an instance that is not sent requests yet, and returns when it is ready.
func (f *fleet) start(t *testing.T, args ...string) *instance {
	t.Helper()
	i := &instance{api: freeAddr(t), admin: f.free[0], log: filepath.Join(t.TempDir(), "log")}
	f.free = f.free[1:]
	log, err := os.Create(i.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	args = append([]string{"-listen", i.api, "-admin", i.admin, "-redis", f.redis.Addr(), "-ttl", "5s", "-charge", "60ms", "-report", "2s", "-late", "3s", "-drain", "1s"}, args...)
	i.cmd = exec.Command(f.program, args...)
	i.cmd.Stderr = log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if i.cmd.ProcessState == nil {
			_ = i.cmd.Process.Kill() // it may have ended
			_ = i.cmd.Wait()         // killed
		}
		if t.Failed() {
			t.Logf("the instance at %s says\n%s", i.admin, i.said(t))
		}
	})
	within(t, 30*time.Second, "the instance is ready", func() bool { return i.probe("/readyz") == http.StatusOK })
	return i
}

func (i *instance) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(i.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// get returns the status and the body of a path of probes and metrics, 0 if the instance does not
// answer.
func (i *instance) get(path string) (status int, body string) {
	r, err := http.Get("http://" + i.admin + path)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, ""
	}
	return r.StatusCode, string(text)
}

// probe returns the status of a probe.
func (i *instance) probe(path string) int {
	status, _ := i.get(path)
	return status
}

// serve sends requests to these instances from now on, as a load balancer does.
func (f *fleet) serve(instances ...*instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serving = nil
	for _, i := range instances {
		f.serving = append(f.serving, i.api)
	}
}

// stop ends an instance as a deployment does: requests go to the others when its probe of readiness
// has failed.
func (f *fleet) stop(t *testing.T, i *instance, others ...*instance) {
	t.Helper()
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the probe of readiness fails", func() bool { return i.probe("/readyz") != http.StatusOK })
	f.serve(others...)
	if i.probe("/livez") != http.StatusOK {
		t.Error("an instance that drains does not live: it would be killed")
	}
	if err := i.cmd.Wait(); err != nil {
		t.Errorf("an instance ended with %v", err)
	}
}

// quiet fails the test if an instance has lost a lock.
func (i *instance) quiet(t *testing.T) {
	t.Helper()
	for _, bad := range []string{"lock lost", "level=ERROR", "closed"} {
		if strings.Contains(i.said(t), bad) {
			t.Errorf("an instance that was stopped logged %q", bad)
		}
	}
}

// pay sends a payment with a key to an instance, and returns the status, 0 for none.
func pay(api, invoice, key, account string) int {
	r, err := http.NewRequest(http.MethodPost, "http://"+api+"/invoices/"+invoice+"/payment", nil)
	if err != nil {
		return 0
	}
	r.Host = "shop.example"
	r.Header.Set("Idempotency-Key", key)
	r.SetBasicAuth(account, "")
	answer, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil { // so that the connection is used again
		return 0
	}
	return answer.StatusCode
}

var client = &http.Client{Timeout: 30 * time.Second}

// clients pay until stopped is closed: new invoices, the same one by two clients, the same key
// twice, and one account too often.
func (f *fleet) clients(stopped <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() { // ends when stopped is closed
			for {
				select {
				case <-stopped:
					return
				case <-time.After(50 * time.Millisecond):
				}
				f.mu.Lock()
				serving := f.serving
				f.mu.Unlock()
				if len(serving) == 0 {
					continue
				}
				r := f.request.Add(1)
				account := fmt.Sprint("account", n)
				if n < 4 {
					account = "busy"
				}
				status := pay(serving[r%int64(len(serving))], fmt.Sprint(r/4), fmt.Sprint("key", r/2), account)
				f.answers[status].Add(1)
			}
		})
	}
	return all.Wait
}
