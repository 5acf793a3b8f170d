package explore

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A Mutant is a change of a file of the code that a model drives, and the bounds within which the model
// must find it.
type Mutant struct {
	What, File string   // the file is relative to the folder of the test
	Change     []string // pairs of a text that occurs once, and what replaces it
	Within     string
}

// Change returns a mutant.
func Change(what, file, within string, pairs ...string) Mutant {
	return Mutant{What: what, File: file, Change: pairs, Within: within}
}

// Hunted is the environment variable with the bounds that the test TestExploreHunt explores.
const Hunted = "FENCELOCK_EXPLORE"

// longest is the most steps of a mutant's counterexample.
const longest = 15

var broken = regexp.MustCompile(`BROKEN after (\d+) steps: (.*)`)

// Hunt fails unless TestExploreHunt of the package under test finds each mutant, with a short
// counterexample. Each is a compilation, so they run with FENCELOCK_SLOW only; otherwise Hunt checks that
// they can still be made.
func Hunt(t *testing.T, mutants []Mutant) {
	t.Helper()
	for _, m := range mutants {
		t.Run(m.What, func(t *testing.T) {
			overlay, err := m.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if os.Getenv("FENCELOCK_SLOW") == "" {
				return
			}
			cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^TestExploreHunt$", ".")
			cmd.Env = append(os.Environ(), Hunted+"="+m.Within)
			out, err := cmd.CombinedOutput()
			found := broken.FindStringSubmatch(string(out))
			if err == nil || found == nil {
				t.Fatalf("it was not found: %v\n%s", err, out)
			}
			if steps, _ := strconv.Atoi(found[1]); steps > longest {
				t.Errorf("the counterexample has %d steps\n%s", steps, out)
			}
			t.Log(found[0])
		})
	}
}

// overlay writes the changed file and the overlay for go test, and returns the name of that.
func (m Mutant) overlay(dir string) (string, error) {
	file, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(source)
	for i := 0; i < len(m.Change); i += 2 {
		if n := strings.Count(text, m.Change[i]); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once", m.File, m.Change[i], n)
		}
		text = strings.Replace(text, m.Change[i], m.Change[i+1], 1)
	}
	changed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replaced, 0o600)
}

// HoldMutants are changes of the hold, for a model in a folder from which root leads to the module.
func HoldMutants(root string) []Mutant {
	file := root + "/internal/hold/hold.go"
	return []Mutant{
		Change("the hold has no margin", file, "rates", "return h.ttl - h.terms.Margin - now", "return h.ttl - now"),
		Change("a renewal counts from its answer", file, "delays", "h.sent, h.ttl = ev.Sent, h.terms.TTL", "h.sent, h.ttl = now, h.terms.TTL"),
		Change("a hold ends a lease late", file, "plain", "h.terms.Leased && h.life(now) <= 0 {", "h.terms.Leased && h.life(now) <= -h.ttl {"),
		Change("a failed renewal counts", file, "time-outs", "h.failed, h.pause = now, h.backoff(ev.Jitter)", "h.failed, h.sent = now, now"),
		Change("a hold begins with twice its lease", file, "plain", "sent: sent, ttl: ttl}", "sent: sent, ttl: 2 * ttl}"),
	}
}
