package evidence_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/lab/evidence"
)

const root = "../.."

// The page must say what the files say.
func TestPage(t *testing.T) {
	want, err := evidence.Render(filepath.Join(root, evidence.Dir))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, evidence.Page))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the files in %s: run make evidence", evidence.Page, evidence.Dir)
	}
}

// A number or a verdict that changes in a file changes the page.
func TestEachFileIsShown(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, evidence.Dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	before, err := evidence.Render(filepath.Join(root, evidence.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, changed := range files {
		dir := t.TempDir()
		for _, file := range files {
			r, err := evidence.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if file == changed {
				change(&r)
			}
			if err := evidence.Write(filepath.Join(dir, filepath.Base(file)), r); err != nil {
				t.Fatal(err)
			}
		}
		after, err := evidence.Render(dir)
		if err != nil {
			t.Fatal(err)
		}
		if after == before {
			t.Errorf("the page does not show a change of %s", filepath.Base(changed))
		}
	}
}

// change changes one number of each list, and nothing else.
func change(r *evidence.Report) {
	for i := range r.Suite {
		r.Suite[i].Failed++
	}
	for i := range r.Simulator {
		r.Simulator[i].Schedules++
	}
	for i := range r.Explored {
		r.Explored[i].States++
	}
	for i := range r.Nemesis {
		r.Nemesis[i].Violations++
	}
	for i := range r.Faults {
		r.Faults[i].Seen = strings.ToUpper(r.Faults[i].Seen)
	}
	for i := range r.Comparisons {
		r.Comparisons[i].Overlap += 1000
		r.Comparisons[i].Takeover++
	}
	for i := range r.Shims {
		r.Shims[i].Failed++
	}
}

// No file says where or on which host it was measured.
func TestNoPlaces(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, evidence.Dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range []string{"/tmp", "/home", "/root", `"` + host} {
			if strings.Contains(string(text), place) {
				t.Errorf("%s contains %s", file, place)
			}
		}
	}
}
