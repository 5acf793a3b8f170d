//go:build linux

package board

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// prometheus is a server that scrapes the service.
type prometheus struct {
	name string // of the kind of histograms that it stores
	url  string
}

// startPrometheus starts a server with the rules in dir. It ends with the test.
func startPrometheus(t *testing.T, name, rules string, targets []string, flags ...string) prometheus {
	t.Helper()
	dir := t.TempDir()
	config := map[string]any{
		"global":         map[string]any{"scrape_interval": scrape.String(), "scrape_timeout": scrape.String(), "evaluation_interval": scrape.String()},
		"rule_files":     []string{rules},
		"scrape_configs": []any{map[string]any{"job_name": "shop", "static_configs": []any{map[string]any{"targets": targets}}}},
	}
	text, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	args := append([]string{"--config.file=" + file, "--storage.tsdb.path=" + dir + "/data", "--web.listen-address=" + addr, "--log.level=warn"}, flags...)
	process(t, "prometheus", args...)
	p := prometheus{name, "http://" + addr}
	within(t, 30*time.Second, name+" is ready", func() bool {
		r, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return p
}

// process starts a program that is ended with the test at the latest. Its errors are logged if the
// test fails.
func process(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; try: .ci/need %s", err, name)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // killed
		}
		if t.Failed() {
			t.Logf("%s says\n%s", name, said.String())
		}
	})
	return cmd
}

// freeAddr returns an address of this host at which nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(hosttest.FreePort(t)))
}

// within fails the test unless it becomes true in time.
func within(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// series is a result of a query.
type series struct {
	Metric map[string]string
	Values []sample // of a range
	Value  sample   // of a moment
}

// sample is a value, or a histogram in the place of one.
type sample struct {
	At float64
	V  float64
}

func (s *sample) UnmarshalJSON(text []byte) error {
	var v string
	if err := json.Unmarshal(text, &[]any{&s.At, &v}); err != nil {
		return err
	}
	var err error
	s.V, err = strconv.ParseFloat(v, 64)
	return err
}

// get asks the server.
func (p prometheus) get(t *testing.T, path string, query url.Values, result any) {
	t.Helper()
	r, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: result}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		t.Fatalf("%s %q: %v", path, query, err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s: %s", p.name, query.Get("query"), answer.Error)
	}
}

// during returns the series of a query over a time, without values that are not numbers.
func (p prometheus) during(t *testing.T, query string, from, to time.Time) (found []series) {
	t.Helper()
	var answer struct{ Result []series }
	unix := func(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000) }
	p.get(t, "/api/v1/query_range", url.Values{"query": {query}, "start": {unix(from)}, "end": {unix(to)}, "step": {scrape.String()}}, &answer)
	for _, s := range answer.Result {
		var values []sample
		for _, v := range s.Values {
			if !math.IsNaN(v.V) && !math.IsInf(v.V, 0) {
				values = append(values, v)
			}
		}
		if s.Values = values; len(values) > 0 {
			found = append(found, s)
		}
	}
	return found
}

// counts reports how many series a metric has during a time, also one of native histograms.
func (p prometheus) counts(t *testing.T, selector string, from, to time.Time) int {
	t.Helper()
	return len(p.during(t, "count("+selector+")", from, to))
}

// firing returns the alerts that fire now.
func (p prometheus) firing(t *testing.T) (names []string) {
	t.Helper()
	var answer struct{ Result []series }
	p.get(t, "/api/v1/query", url.Values{"query": {`ALERTS{alertstate="firing"}`}}, &answer)
	for _, s := range answer.Result {
		names = append(names, s.Metric["alertname"])
	}
	return names
}
