package house_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// handlersProgram is a program around the blocks of docs/handlers.md. It asks the
// handlers for one answer of each kind.
const handlersProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

type server struct {
	locks  *fencelock.Locker
	charge func(ctx context.Context, id string, token int64) error
}

func main() {
	engine := memlock.New(nil)
	s := &server{locks: fencelock.New(engine, nil)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}", s.pay)
	ask := func(method, path string, charge func(context.Context, string, int64) error) {
		s.charge = charge
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		fmt.Println(method, path, w.Code)
	}
	ask("POST", "/invoices/1", func(_ context.Context, id string, token int64) error {
		if id != "1" || token <= 0 {
			return errors.New("wrong")
		}
		return nil
	})
	ask("POST", "/invoices/2", func(context.Context, string, int64) error { return errors.New("no money") })
	ask("POST", "/invoices/3", func(ctx context.Context, _ string, _ int64) error {
		engine.Lose("invoice:3")
		<-ctx.Done()
		return nil
	})
	held, _ := s.locks.Acquire(context.Background(), "invoice:4")
	ask("POST", "/invoices/4", nil)
	_ = held.Release()
	engine.Refuse(errors.New("down"))
	ask("POST", "/invoices/5", nil)
	engine.Refuse(nil)
	_, _ = os.Stdout, time.Second
}
`

// The Go blocks of a page compile, and do what the page says.
func TestPagesGo(t *testing.T) {
	for page, c := range map[string]struct{ program, want string }{
		"docs/handlers.md": {handlersProgram, `POST /invoices/1 204
POST /invoices/2 500
POST /invoices/3 500
POST /invoices/4 409
POST /invoices/5 503
`},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			source := []string{c.program}
			for _, b := range readBlocks(t, page) {
				if b.language == "go" {
					source = append(source, b.text)
				}
			}
			if out := runOverlay(t, ".", readmeDir(t), strings.Join(source, "\n")); out != c.want {
				t.Errorf("printed\n%s, want\n%s", out, c.want)
			}
		})
	}
}

// TestObservabilityPage: the Go of the page is part of the examples of the two exporters, which run,
// and both have the metrics of its table, under the names that an exporter of OpenTelemetry gives
// them.
func TestObservabilityPage(t *testing.T) {
	const page = "docs/observability.md"
	examples := dedent(readText(t, "observe/promfencelock/example_test.go")) + dedent(readText(t, "observe/otelfencelock/example_test.go"))
	for _, b := range readBlocks(t, page) {
		if b.language == "go" && !strings.Contains(examples, b.text) {
			t.Errorf("%s:%d: not part of an example of promfencelock or otelfencelock", page, b.line)
		}
	}
	var documented, prom, otel []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(fencelock_\\w+)` \\|").FindAllStringSubmatch(readText(t, page), -1) {
		documented = append(documented, m[1])
	}
	of := readText(t, "observe/promfencelock/metrics.go")
	for _, m := range regexp.MustCompile(`(NewDesc|histogram|counter)\("(\w+)"`).FindAllStringSubmatch(of, -1) {
		name := "fencelock_" + strings.TrimPrefix(m[2], "fencelock_")
		if m[1] == "counter" {
			name += "_total"
		}
		prom = append(prom, name)
	}
	of = readText(t, "observe/otelfencelock/metrics.go")
	for _, m := range regexp.MustCompile(`(\w+)\("([a-z.]+)", (?:metric\.WithUnit\()?"([^"]+)"`).FindAllStringSubmatch(of, -1) {
		name := "fencelock_" + strings.ReplaceAll(strings.TrimPrefix(m[2], "fencelock."), ".", "_")
		switch {
		case m[3] == "s":
			name += "_seconds"
		case m[1] == "counter":
			name += "_total"
		}
		otel = append(otel, name)
	}
	for label, values := range map[string][]string{"error_type": lockmetrics.Failures, "hold_end": lockmetrics.HoldEnds} {
		values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == lockmetrics.Other })
		if want := "`" + label + "`: `" + strings.Join(values, "`, `") + "` |"; !strings.Contains(readText(t, page), want) {
			t.Errorf("%s does not have %s", page, want)
		}
	}
	for what, names := range map[string][]string{"promfencelock": prom, "otelfencelock": otel} {
		slices.Sort(names)
		if slices.Sort(documented); !slices.Equal(documented, names) || len(names) < 18 {
			t.Errorf("%s documents %q, and %s has %q", page, documented, what, names)
		}
	}
}

// TestAlertsPage: the page lists the alerts of the rules, with their descriptions and what to do.
func TestAlertsPage(t *testing.T) {
	_, list, _ := strings.Cut(readText(t, "docs/observability.md"), "\n## Alerts\n")
	list, _, _ = strings.Cut(list, "\n## ")
	var want []string
	for _, m := range regexp.MustCompile(`(?s)alert: (\w+).*?description: ([^\n]+)\n *runbook_url: \S+/docs/(\S+)`).FindAllStringSubmatch(readText(t, "contrib/prometheus/rules.yml"), -1) {
		want = append(want, fmt.Sprintf("- [`%s`](%s): %s", m[1], m[3], m[2]))
	}
	got := regexp.MustCompile("(?m)^- \\[`.*").FindAllString(strings.ReplaceAll(list, "\n  ", " "), -1)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("docs/observability.md has the alerts\n%s\nand the rules are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestBenchmarksPage: every number in the tables of the page is one of the results.
func TestBenchmarksPage(t *testing.T) {
	results := readText(t, "lab/bench/results.md")
	n := 0
	for line := range strings.Lines(readText(t, "docs/benchmarks.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for _, cell := range cells[1:] {
			cell = strings.Trim(cell, " *")
			if cell == "" || cell[0] < '0' || cell[0] > '9' {
				continue
			}
			n++
			if !regexp.MustCompile(`[ (]` + regexp.QuoteMeta(cell) + `[ )]`).MatchString(results) {
				t.Errorf("the results do not have %q of\n%s", cell, line)
			}
		}
	}
	if n < 50 {
		t.Errorf("the page has %d numbers", n)
	}
}
