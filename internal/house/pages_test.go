package house_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
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
