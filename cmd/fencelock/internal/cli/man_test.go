//go:build unix

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// manPages returns the directory of all pages, and their names.
func manPages(t *testing.T) (dir string, names []string) {
	dir, err := os.MkdirTemp("", "fencelock")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, verb := range append(verbNames(allVerbs()), "") {
		name := strings.TrimSuffix("fencelock-"+verb, "-") + ".1"
		var page, talk bytes.Buffer
		if code := run(strings.Fields("man "+verb), nil, &page, &talk); code != 0 {
			t.Fatalf("man %s: %d, %s", verb, code, talk.String())
		}
		must(t, os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o600))
		names = append(names, name)
	}
	return dir, names
}

func TestManPagesAreClean(t *testing.T) {
	t.Parallel()
	dir, names := manPages(t)
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not here; try: .ci/need shells")
	}
	for _, name := range names {
		cmd := exec.Command(mandoc, "-Tlint", name)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // its code says no more than its words
		for line := range strings.Lines(string(out)) {
			// Our pages are not installed; that they exist is looked at below.
			if !strings.Contains(line, "referenced manual not found: Xr fencelock") {
				t.Error(line)
			}
		}
	}
}

func TestManPagesLeadToOthers(t *testing.T) {
	t.Parallel()
	dir, names := manPages(t)
	for _, name := range names {
		page, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		for line := range strings.Lines(string(page)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == ".Xr" {
				if _, err := os.Stat(filepath.Join(dir, f[1]+".1")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// The man page of a verb says what its help does.
func TestManPageKnowsEveryFlag(t *testing.T) {
	t.Parallel()
	dir, _ := manPages(t)
	for _, v := range allVerbs() {
		if v.flags == nil {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "fencelock-"+v.name+".1"))
		must(t, err)
		l := line{verbs: allVerbs()}
		must(t, l.read([]string{v.name, "--help"}))
		for _, name := range l.flagNames() {
			if !strings.Contains(string(page), "Fl -"+name) && l.global.Lookup(name) == nil {
				t.Errorf("man %s: no --%s", v.name, name)
			}
		}
	}
}

func TestManTextIsNoCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		".Dd":      `\&.Dd`,
		"'a'":      `\(aqa\(aq`,
		`a\b -c ~`: `a\eb \-c \(ti`,
	} {
		if got := manText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
