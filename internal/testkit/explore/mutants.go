package explore

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A Mutant is a change of a file of the code under test that must be found.
type Mutant struct {
	What, File string   // the file is relative to the folder of the test
	By         string   // who must find it: for Hunt, bounds of a model, for Catch, a test
	Change     []string // pairs of a text that occurs once, and what replaces it
}

// Change returns a mutant.
func Change(what, file, by string, pairs ...string) Mutant { return Mutant{what, file, by, pairs} }

// Hunted is the environment variable with the bounds that the test TestExploreHunt explores.
const Hunted = "FENCELOCK_EXPLORE"

// longest is the most steps of a mutant's counterexample.
const longest = 15

var broken = regexp.MustCompile("BROKEN after .*")

// Hunt fails unless TestExploreHunt of the package under test finds each mutant, also of the hold. root leads
// from the folder of the test to the module.
func Hunt(t *testing.T, root string, mutants []Mutant) {
	t.Helper()
	for _, m := range append(holdMutants(root+"/internal/hold/hold.go"), mutants...) {
		t.Run(m.What, func(t *testing.T) { t.Log(broken.FindString(m.test(t, "TestExploreHunt", Hunted+"="+m.By))) })
	}
}

// Catch fails unless the test that each mutant names finds it.
func Catch(t *testing.T, mutants []Mutant) {
	t.Helper()
	for _, m := range mutants {
		t.Run(m.What, func(t *testing.T) {
			t.Parallel()
			m.test(t, m.By)
		})
	}
}

// test fails unless a test of the package under test fails with a mutant. It returns what that test has said.
// Each is a compilation, so it runs with FENCELOCK_SLOW only; otherwise this checks that the mutant can still
// be made.
func (m Mutant) test(t *testing.T, name string, env ...string) string {
	t.Helper()
	overlay := m.overlay(t)
	if !slow() {
		return ""
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^"+name+"$", ".")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+name) {
		t.Fatalf("%s did not fail: %v\n%s", name, err, out)
	}
	return string(out)
}

// overlay writes the changed file and the overlay for go test, and returns the name of that.
func (m Mutant) overlay(t *testing.T) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := filepath.Abs(m.File)
	must(err)
	source, err := os.ReadFile(file)
	must(err)
	text, dir := string(source), t.TempDir()
	for i := 0; i < len(m.Change); i += 2 {
		if n := strings.Count(text, m.Change[i]); n != 1 {
			t.Fatalf("%s has %q %d times, want once", m.File, m.Change[i], n)
		}
		text = strings.Replace(text, m.Change[i], m.Change[i+1], 1)
	}
	changed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	must(err)
	must(os.WriteFile(changed, []byte(text), 0o600))
	must(os.WriteFile(overlay, replaced, 0o600))
	return overlay
}

func holdMutants(file string) []Mutant {
	return []Mutant{
		Change("the hold has no margin", file, "rates", "return h.ttl - h.terms.Margin - now", "return h.ttl - now"),
		Change("a renewal counts from its answer", file, "delays", "h.sent, h.ttl = ev.Sent, h.terms.TTL", "h.sent, h.ttl = now, h.terms.TTL"),
		Change("a hold ends a lease late", file, "plain", "h.terms.Leased && h.life(now) <= 0 {", "h.terms.Leased && h.life(now) <= -h.ttl {"),
		Change("a failed renewal counts", file, "time-outs", "h.failed, h.pause = now, h.backoff(ev.Jitter)", "h.failed, h.sent = now, now"),
		Change("a hold begins with twice its lease", file, "plain", "sent: sent, ttl: ttl}", "sent: sent, ttl: 2 * ttl}"),
	}
}
