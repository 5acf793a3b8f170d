package promfencelock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
)

const rules = "../../contrib/prometheus/rules"

// The rules pass their tests in promtool.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", rules + ".yml"}, {"test", "rules", rules + "_test.yml"}} {
		out, err := exec.Command("promtool", args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out) // make installs promtool
		}
	}
}

// selector is a metric in a rule, with its matchers.
var (
	selector = regexp.MustCompile(`\b(fencelock_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
)

// A rule with a wrong name passes its tests in promtool. So each metric in the rules, and each value
// of a label, is looked up in what a collector exports.
func TestRulesMatchMetrics(t *testing.T) {
	text, err := os.ReadFile(rules + ".yml")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		series := exported(t)
		found := 0
		for _, m := range selector.FindAllStringSubmatch(string(text), -1) {
			found++
			of := series[m[1]]
			if len(of) == 0 {
				t.Errorf("%s is not exported", m[1])
			}
			for _, match := range matcher.FindAllStringSubmatch(m[2], -1) {
				for value := range strings.SplitSeq(match[2], "|") {
					if !slices.ContainsFunc(of, func(labels map[string]string) bool { return labels[match[1]] == value }) {
						t.Errorf("no series of %s has %s=%q", m[1], match[1], value)
					}
				}
			}
		}
		if found < 15 {
			t.Errorf("%d metrics in the rules", found)
		}
	})
}

// exported returns the labels of all series by their metric, after a program has used all recipes. A
// histogram has a series for each classic bucket, and one for itself.
func exported(t *testing.T) map[string][]map[string]string {
	t.Helper()
	p := newProgram(t, nil)
	first := p.acquire(t, "invoice:1")
	time.AfterFunc(30*time.Second, func() { _ = first.Release() })
	second := p.acquire(t, "invoice:1")
	p.engine.Refuse(errors.New("down"))
	time.Sleep(30 * time.Second)
	late := time.Now().Add(-time.Hour)
	job := cron.New(p.locks, "nightly", nil)
	_ = job.Tick(t.Context(), late, func(context.Context) error { return nil })
	_ = job.Now(t.Context(), func(context.Context) error { return nil })
	p.engine.Refuse(nil)
	time.Sleep(time.Minute)
	_ = second.Release()
	_ = election.Run(t.Context(), p.locks, "billing", func(context.Context) error { return nil })
	families, err := p.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()] = append(all[f.GetName()], labelsOf(m, ""))
			for _, b := range m.GetHistogram().GetBucket() {
				le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
				all[f.GetName()+"_bucket"] = append(all[f.GetName()+"_bucket"], labelsOf(m, le))
			}
		}
	}
	return all
}

// labelsOf returns the labels of a series, and le if it is that of a bucket.
func labelsOf(m *dto.Metric, le string) map[string]string {
	labels := map[string]string{"le": le}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}
