//go:build linux

package board

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/lab/picture"
)

var record = flag.String("record", "", "store what the panels show for a picture of this `folder` of documentation")

// TestLive runs instances of the service through a rolling deployment, a report that fails, a frozen
// holder, an outage of Redis and the end of all instances. Two servers of Prometheus scrape them: one
// stores classic histograms, the other one native ones. On both, every panel has data and every alert
// finds its metrics.
func TestLive(t *testing.T) {
	began := time.Now()
	f := newFleet(t, 7)
	rules, text := rulesFile(t)
	servers := []prometheus{
		startPrometheus(t, "classic", rules, f.free),
		startPrometheus(t, "native", rules, f.free, "--enable-feature=native-histograms"),
	}
	stopped := make(chan struct{})
	wait := f.clients(stopped)
	defer wait()
	defer close(stopped)
	l := &live{fleet: f, servers: servers, began: began}

	old := []*instance{f.start(t), f.start(t), f.start(t)}
	f.serve(old...)
	for _, p := range servers {
		within(t, 30*time.Second, "an instance leads", func() bool {
			return len(p.during(t, "fencelock_election_leading == 1", time.Now().Add(-scrape), time.Now())) > 0
		})
	}
	l.happens("a rolling deployment begins")
	fresh := l.deploy(t, old)
	l.happens("a job fails")
	l.failReport(t)
	l.happens("a holder is frozen")
	l.freeze(t, fresh)
	l.happens("Redis does not answer")
	l.cutOff(t)
	l.happens("all instances stop")
	for _, i := range fresh {
		f.stop(t, i)
	}
	l.fires(t, "FencelockNobodyLeads")
	for _, status := range []int{http.StatusNoContent, http.StatusConflict, http.StatusTooManyRequests} {
		if f.answers[status].Load() == 0 {
			t.Errorf("no request had the status %d", status)
		}
	}
	checkPanels(t, servers, began)
	checkRules(t, servers, text, began)
	if *record != "" {
		l.draw(t, *record)
	}
}

// live are the service and the servers that scrape it.
type live struct {
	*fleet
	servers []prometheus
	began   time.Time
	events  []picture.BoardEvent
}

// happens notes an event for the picture.
func (l *live) happens(what string) {
	l.events = append(l.events, picture.BoardEvent{At: time.Since(l.began).Seconds(), What: what})
}

// fires waits until alerts fire on all servers.
func (l *live) fires(t *testing.T, alerts ...string) {
	t.Helper()
	for _, p := range l.servers {
		for _, alert := range alerts {
			within(t, 30*time.Second, alert+" fires on the server with "+p.name+" histograms", func() bool {
				return slices.Contains(p.firing(t), alert)
			})
		}
	}
}

// deploy replaces the instances one by one, as a Deployment of Kubernetes does. No alert fires, also
// not later. Only that of late renewals may: the machine of the test may be overloaded.
func (l *live) deploy(t *testing.T, old []*instance) (fresh []*instance) {
	t.Helper()
	began := time.Now()
	running := slices.Clone(old)
	for n, i := range old {
		fresh = append(fresh, l.start(t))
		running[n] = fresh[n]
		l.stop(t, i, running...)
		i.quiet(t)
	}
	time.Sleep(2*time.Minute/shorter + 4*scrape) // FencelockNobodyLeads would fire
	for _, p := range l.servers {
		for _, s := range p.during(t, `ALERTS{alertstate="firing", alertname!="FencelockRenewalsLate"}`, began, time.Now()) {
			t.Errorf("an alert of a rolling deployment: %v", s.Metric)
		}
	}
	return fresh
}

// failReport makes a run of the job fail, by a key of another type.
func (l *live) failReport(t *testing.T) {
	t.Helper()
	l.redis.Do(t, "SET", "{shop}:report", "not a hash")
	l.fires(t, "FencelockJobFailed")
	l.redis.Do(t, "DEL", "{shop}:report")
}

// freeze stops a process that is paying an invoice. Another one pays it when the lease has expired.
// The first one then finds its lock lost, and its write is refused.
func (l *live) freeze(t *testing.T, others []*instance) {
	t.Helper()
	const name = "frozen"
	frozen := l.start(t, "-charge", "8s")
	answer := make(chan int, 1)
	go func() { answer <- pay(frozen.api, name, "first", "frozen") }() // ends with the payment
	within(t, 10*time.Second, "the payment holds its lock", func() bool {
		_, text := frozen.get("/metrics")
		return strings.Contains(text, `fencelock_hold_count{class="invoice",engine="redis",kind="lock",mode="exclusive"} 1`)
	})
	if err := frozen.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if status := pay(others[0].api, name, "second", "other"); status != http.StatusNoContent {
		t.Errorf("the second payment has status %d", status)
	}
	if err := frozen.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status := <-answer; status != http.StatusInternalServerError { // its outcome is unknown
		t.Errorf("the payment of the frozen process has status %d", status)
	}
	l.fires(t, "FencelockLockLost", "FencelockWriteRefused")
	if err := frozen.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := frozen.cmd.Wait(); err != nil {
		t.Errorf("the frozen instance ended with %v", err)
	}
	if !strings.Contains(frozen.said(t), "lock lost") {
		t.Error("this test does not see a lost lock in a log")
	}
}

// cutOff freezes Redis until alerts fire.
func (l *live) cutOff(t *testing.T) {
	t.Helper()
	l.redis.Freeze(t)
	l.fires(t, "FencelockUnavailable")
	for _, p := range l.servers { // FencelockTickNotRun fires later: within its 15 minutes a tick was run
		ticks := fmt.Sprintf(`increase(fencelock_cron_ticks_total{result="error"}[%v]) > 0`, 20*scrape)
		within(t, 30*time.Second, "a tick is not run", func() bool {
			return len(p.during(t, ticks, time.Now().Add(-scrape), time.Now())) > 0
		})
	}
	l.redis.Thaw(t)
	for _, p := range l.servers {
		within(t, 30*time.Second, "an instance leads again", func() bool {
			return len(p.during(t, "fencelock_election_leading == 1", time.Now().Add(-scrape), time.Now())) > 0
		})
	}
}

// checkPanels fails the test if a query of the board has no data.
func checkPanels(t *testing.T, servers []prometheus, began time.Time) {
	t.Helper()
	rows, _ := panels(t)
	for _, row := range rows {
		for _, panel := range row {
			for _, target := range panel.Targets {
				for _, p := range servers {
					if len(p.during(t, query(target.Expr), began, time.Now())) == 0 {
						t.Errorf("panel %q has no data with %s histograms: %s", panel.Title, p.name, target.Expr)
					}
				}
				found(t, servers, query(target.Expr), began)
			}
		}
	}
}

// checkRules fails the test if a rule has a metric, or a value of a label, that no instance exports.
func checkRules(t *testing.T, servers []prometheus, text string, began time.Time) {
	t.Helper()
	for _, p := range servers {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, Query, Health, LastError string }
			}
		}
		p.get(t, "/api/v1/rules", nil, &rules)
		n := 0
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				n++
				if r.Health != "ok" {
					t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
				}
				found(t, servers, r.Query, began)
			}
		}
		if want := strings.Count(text, "- alert:"); n != want {
			t.Errorf("the server has %d rules, the file has %d", n, want)
		}
	}
}

// found fails the test unless one of the servers has each selector of an expression.
func found(t *testing.T, servers []prometheus, expr string, began time.Time) {
	t.Helper()
	all := selectors(expr)
	if len(all) == 0 {
		t.Errorf("no metric of fencelock in %s", expr)
	}
	for _, s := range all {
		if !slices.ContainsFunc(servers, func(p prometheus) bool { return p.counts(t, s, began, time.Now()) > 0 }) {
			t.Errorf("nothing exports %s", s)
		}
	}
}
