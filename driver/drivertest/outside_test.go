package drivertest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// bare is an engine that can do nothing but what every engine must.
type bare struct {
	drivertest.Client
	deaf bool // never calls Request.OnWait
}

func (b bare) Traits() driver.Traits {
	t := b.Client.Traits()
	t.Rates = false // it is no driver.RateLimiter
	return t
}

func (b bare) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if b.deaf {
		req.OnWait = nil
	}
	return b.Client.Acquire(ctx, req)
}

// bareStore is a world of bare clients, and cannot fall silent.
type bareStore struct {
	drivertest.World
	deaf bool
}

func (s bareStore) Client(t testing.TB) drivertest.Client { return bare{s.World.Client(t), s.deaf} }

const outsider = "FENCELOCK_TEST_OUTSIDER" // which suite TestOutsider runs

// TestOutsider is a suite that another test runs as a process of its own, to see what
// its author would see.
func TestOutsider(t *testing.T) {
	kind := os.Getenv(outsider)
	if kind == "" {
		return
	}
	drivertest.Run(t, drivertest.Suite{Bubble: true, World: func(testing.TB) drivertest.World {
		return bareStore{store{memlock.New(nil)}, kind == "deaf"}
	}})
}

var verdict = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): TestOutsider/(\S+)`)

// outside runs a suite and returns its cases by verdict, and what it printed.
func outside(t *testing.T, kind string) (cases map[string][]string, printed string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutsider$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), outsider+"="+kind)
	out, _ := cmd.CombinedOutput() // a failed suite exits with 1
	cases = map[string][]string{}
	for _, m := range verdict.FindAllStringSubmatch(string(out), -1) {
		cases[m[1]] = append(cases[m[1]], m[2])
	}
	return cases, string(out)
}

// TestWhatAnEngineCannotIsSkipped: an engine without the optional interfaces passes
// none of their cases: they are skipped, and say why.
func TestWhatAnEngineCannotIsSkipped(t *testing.T) {
	t.Parallel()
	cases, printed := outside(t, "bare")
	if len(cases["FAIL"]) > 0 || len(cases["PASS"]) < 20 {
		t.Fatalf("failed %q, passed %q\n%s", cases["FAIL"], cases["PASS"], printed)
	}
	want := []string{"adopt", "adopt-ended", "adopt-input", "adopt-min-hold", "adopt-race", "adopt-shared", "break", "break-minimum", "break-owner", "closed-engine", "list", "lost-callback", "outage", "record-apart",
		"record-await", "record-clock", "record-expiry", "record-input", "record-lasts", "record-list", "record-outage", "record-race", "record-swap",
		"resize", "resize-lasts", "silent-waiter", "unreachable"}
	slices.Sort(cases["SKIP"])
	if !slices.Equal(cases["SKIP"], want) {
		t.Errorf("skipped %q, want %q", cases["SKIP"], want)
	}
	for _, why := range []string{"no driver.Lister", "no driver.Breaker", "no driver.OwnerBreaker", "no driver.Adopter", "no driver.Resizer", "no driver.RecordKeeper", "no drivertest.Cutter"} {
		if !strings.Contains(printed, why) {
			t.Errorf("nothing says %q", why)
		}
	}
}

// TestOneOmissionFailsOnce: an engine that leaves one thing out fails one case by it,
// with one line; those that need the same are skipped.
func TestOneOmissionFailsOnce(t *testing.T) {
	t.Parallel()
	cases, printed := outside(t, "deaf")
	if len(cases["FAIL"]) != 1 || !slices.Contains(cases["FAIL"], "waiting-told") {
		t.Errorf("failed %q", cases["FAIL"])
	}
	if n := strings.Count(printed, "OnWait was not called"); n != 1 {
		t.Errorf("said %d times that OnWait was not called:\n%s", n, printed)
	}
	if !strings.Contains(printed, "it needs what TestOutsider/waiting-told found missing") {
		t.Errorf("the cases that are left out do not say why:\n%s", printed)
	}
}
