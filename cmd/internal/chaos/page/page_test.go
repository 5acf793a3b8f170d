package page_test

import (
	"bytes"
	"errors"
	"flag"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/internal/chaos/page"
)

var samples = flag.String("samples", "", "write the sample pages to this `folder`")

func write(t *testing.T, h *history.History) string {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, h, "fencelock chaos --engine redis --for 60s --seed 20261104"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// text returns what a page says: without its styles, its script and its tags.
func text(page string) string {
	page = regexp.MustCompile(`(?s)<(style|script)[ >].*?</(style|script)>|<svg.*?</svg>`).ReplaceAllString(page, " ")
	page = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(html.UnescapeString(page)), " ")
}

func wants(t *testing.T, page string, facts ...string) {
	t.Helper()
	for _, fact := range facts {
		if !strings.Contains(text(page), fact) {
			t.Errorf("the page does not say %q:\n%s", fact, text(page))
		}
	}
}

// crowded is how many acquisitions a dense history has, about: 100,000 with FENCELOCK_SLOW set and
// in the samples, which a browser opens.
func crowded() int {
	if *samples != "" || os.Getenv("FENCELOCK_SLOW") != "" {
		return 100_000
	}
	return 10_000
}

// TestSamples: the page of the same history is the same. The tests with a browser open these pages.
func TestSamples(t *testing.T) {
	for name, h := range map[string]*history.History{
		"violated": stormy(true), "clean": stormy(false), "dense": dense(crowded()), "hostile": hostile(), "crowd": crowd(), "down": down(), "empty": {Engine: "redis"},
	} {
		first := write(t, h)
		if first != write(t, h) {
			t.Errorf("%s: two pages of one history differ", name)
		}
		if *samples != "" {
			if err := os.WriteFile(filepath.Join(*samples, name+".html"), []byte(first), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestViolated(t *testing.T) {
	p := write(t, stormy(true))
	wants(t, p, "3 violations V1: w2 (token 1866, 33.940275s to 34.880275s) and w6 (token 1839, 34.700275s to 35.350275s) both held stock:7781, after F5 (restart)",
		"More than one holder? 1 time for at most 180 ms", "Tokens in order? 1 out of order the first one is V2",
		"Loss signalled first? 2 of 3 the latest came 180 ms after the next grant",
		"was granted stock:7781 after w2 (token 1866",
		"seed 20261104", "Run it again: fencelock chaos --engine redis --for 60s --seed 20261104")
	if !strings.Contains(p, `"margin":"50.5 ms","cause":"lock \"stock:7781\" with token 1069 was lost: no renewal was acknowledged before the deadline, after F2 (freeze)"`) {
		t.Error("the timeline does not know why w5 lost its lock, and by how much before the next grant")
	}
	if !strings.Contains(p, `href="#t=34.3`) {
		t.Error("no link opens the timeline at the violation")
	}
}

func TestClean(t *testing.T) {
	wants(t, write(t, stormy(false)), "No violations In 1,238 acquisitions with 8 faults in 60 s: no two workers held a lock at once, tokens were in order, each loss was signalled before the next grant.",
		"More than one holder? never", "Tokens in order? always", "Loss signalled first? 2 of 2", "in 1,238 acquisitions of 3 locks")
}

func TestEmpty(t *testing.T) {
	wants(t, write(t, down()), "Nothing was tested", "0 acquisitions in 3 lanes", "F1 0.000 s cut No host reaches the server")
	p := write(t, &history.History{Engine: "redis"})
	wants(t, p, "Nothing was tested No worker acquired a lock in this run.")
	if strings.Contains(p, "<canvas") {
		t.Error("the page of nothing has a timeline")
	}
}

// TestExpected: what the faults of a run can cause on its engine is shown, and is no violation.
func TestExpected(t *testing.T) {
	h := stormy(true)
	h.Judge(history.Rules{TwoHolders: true})
	wants(t, write(t, h), "No violations", "3 findings, possible with these faults as the engine's page says", "overlap, expected", "E1")
}

// TestHostile: no name and no text becomes HTML or ends the script.
func TestHostile(t *testing.T) {
	p := write(t, hostile())
	for _, tag := range []string{"<img", "<b>c", "<i>r", "<u>", "<s>", "<q>", `<script>alert`, "</script><script>alert"} {
		if strings.Contains(p, tag) {
			t.Errorf("the page has %s", tag)
		}
	}
	wants(t, p, "<q>text</q>", "-9223372036854775808")
	if got, want := strings.Count(p, "<script"), 3; got != want {
		t.Errorf("the page has %d scripts, not %d", got, want)
	}
}

// TestSelfContained: the page names nothing that a browser would fetch, and forbids fetching.
func TestSelfContained(t *testing.T) {
	p := write(t, stormy(true))
	if found := regexp.MustCompile(`(?i)(src|href)="[^#"][^"]*"|url\(|@import|fetch\(|https?://`).FindString(p); found != "" {
		t.Errorf("the page has %s", found)
	}
	if !strings.Contains(p, `content="default-src 'none'; `) {
		t.Error("the page has no policy")
	}
}

func TestSize(t *testing.T) {
	h := dense(crowded())
	n := len(h.Acquisitions)
	if n < crowded()*3/4 {
		t.Fatalf("the history has %d acquisitions", n)
	}
	if size := len(write(t, h)); size > 60_000+44*n {
		t.Errorf("a page with %d acquisitions has %d bytes", n, size)
	}
	if n := len(write(t, &history.History{})); n > 60_000 {
		t.Errorf("an empty page has %d bytes", n)
	}
	script, err := os.ReadFile("page.js")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(script, []byte("\n")); n > 500 {
		t.Errorf("page.js has %d lines", n)
	}
}

var errFull = errors.New("the disk is full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteError(t *testing.T) {
	if err := page.Write(fullDisk{}, stormy(true), ""); !errors.Is(err, errFull) {
		t.Errorf("the error is %v", err)
	}
}
