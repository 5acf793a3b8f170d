// Package inspect is shared by the Inspect methods of all engines. It uses an engine on probe
// names, judges clocks, and creates and combines findings.
package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Passed returns a finding without a problem.
func Passed(check, saw string) driver.Finding { return driver.Finding{Check: check, Observed: saw} }

// Found returns a finding with its impact and a fix.
func Found(check string, how driver.Severity, saw, means, do string) driver.Finding {
	return driver.Finding{Check: check, Severity: how, Observed: saw, Impact: means, Fix: do}
}

// Unchecked returns the finding for a check that could not be made.
func Unchecked(check string, why error, do string) driver.Finding {
	return Found(check, driver.Unknown, driver.OneLine(why).Error(), "this could not be checked", do)
}

// Together combines the findings of several places. A check that passed everywhere is listed once;
// other findings are listed with their places.
func Together(places []string, found [][]driver.Finding) (all []driver.Finding) {
	if len(places) == 1 {
		return found[0]
	}
	where := map[driver.Finding][]string{}
	spoilt := map[string]bool{} // checks that did not pass everywhere
	var distinct []driver.Finding
	for i, list := range found {
		for _, f := range list {
			good := f.Severity == driver.Good
			known := slices.ContainsFunc(distinct, func(t driver.Finding) bool { return t == f || good && t.Check == f.Check && t.Severity == f.Severity })
			if !known {
				distinct = append(distinct, f)
			}
			spoilt[f.Check] = spoilt[f.Check] || !good
			where[f] = append(where[f], places[i])
		}
	}
	for _, f := range distinct {
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

// Short rounds a duration for display.
func Short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
