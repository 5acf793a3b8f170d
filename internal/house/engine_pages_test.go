package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/catalog"
)

// sections are the headings that engine pages share, in their order.
var sections = []string{"Set-up", "Settings", "Failures", "The cost", "Limits"}

var section = regexp.MustCompile(`(?m)^## (.+)$`)

// TestEnginePages: the page of each engine has the facts of the catalog, and then the shared sections in one
// order. That of a store has all sections but the last one, and one about rights.
func TestEnginePages(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range catalog.Engines {
		text, err := os.ReadFile(filepath.Join("docs", e.Page))
		if err != nil {
			t.Fatal(err)
		}
		page := string(text)
		seen[e.Page] = true
		var all, shared []string
		for _, m := range section.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
			all = append(all, m[1])
			if slices.Contains(sections, m[1]) {
				shared = append(shared, m[1])
			}
		}
		before := func(a, b string) int { return slices.Index(sections, a) - slices.Index(sections, b) }
		switch at := strings.Index(page, "<!-- engines facts "); {
		case len(all) == 0 || all[0] != "Set-up" && e.Package != "memlock":
			t.Errorf("%s begins with %q", e.Page, all)
		case at < 0 || at > strings.Index(page, "\n## "):
			t.Errorf("%s has no facts of the catalog before its first section", e.Page)
		case !slices.IsSortedFunc(shared, before):
			t.Errorf("%s has %q, want the order of %q", e.Page, shared, sections)
		}
		if !e.Store() {
			continue
		}
		for _, want := range sections[:4] {
			if !slices.Contains(all, want) {
				t.Errorf("%s has no section %q", e.Page, want)
			}
		}
		if !slices.Contains(all, "Rights") && !slices.Contains(all, "Permissions") {
			t.Errorf("%s has no section about rights", e.Page)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d pages", len(seen))
	}
}
