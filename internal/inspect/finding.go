// Package inspect contains what the inspections of all engines share: the use of an engine on probe
// names, the check of a clock, and the wording of findings.
package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Passed is a finding of nothing to worry about.
func Passed(check, saw string) driver.Finding { return driver.Finding{Check: check, Observed: saw} }

// Found is a finding that says what it means and what to do.
func Found(check string, how driver.Severity, saw, means, do string) driver.Finding {
	return driver.Finding{Check: check, Severity: how, Observed: saw, Impact: means, Fix: do}
}

// Unchecked is the finding of a check that could not be made.
func Unchecked(check string, why error, do string) driver.Finding {
	return Found(check, driver.Unknown, driver.OneLine(why).Error(), "this could not be checked", do)
}

// Together brings together what was found in several places. What is good everywhere is told
// once, and anything else with the places where it was found.
func Together(places []string, found [][]driver.Finding) (all []driver.Finding) {
	if len(places) == 1 {
		return found[0]
	}
	where := map[driver.Finding][]string{}
	spoilt := map[string]bool{} // checks that are not good everywhere
	var told []driver.Finding
	for i, list := range found {
		for _, f := range list {
			good := f.Severity == driver.Good
			known := slices.ContainsFunc(told, func(t driver.Finding) bool { return t == f || good && t.Check == f.Check && t.Severity == f.Severity })
			if !known {
				told = append(told, f)
			}
			spoilt[f.Check] = spoilt[f.Check] || !good
			where[f] = append(where[f], places[i])
		}
	}
	for _, f := range told {
		at := where[f]
		switch {
		case f.Severity != driver.Good:
			f.Observed = strings.Join(at, ", ") + ": " + f.Observed
		case spoilt[f.Check]:
			continue
		default:
			f.Observed += fmt.Sprintf(" on %s, and good on %d more", at[0], len(places)-1)
		}
		all = append(all, f)
	}
	return all
}

// Short rounds a time for people.
func Short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
