package verdict_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

func TestOf(t *testing.T) {
	for what, c := range map[string]struct{ got, want verdict.Verdict }{
		"a holder that knows":            {verdict.OfHolders(fmt.Errorf("x: %w", driver.ErrLost), 1, 2), verdict.Safe},
		"a holder that cannot renew":     {verdict.OfHolders(driver.ErrNotHeld, 2, 1), verdict.Safe},
		"a holder that does not know":    {verdict.OfHolders(nil, 1, 2), verdict.Guarded},
		"a holder that cannot ask":       {verdict.OfHolders(driver.ErrUnavailable, 1, 2), verdict.Guarded},
		"the same token":                 {verdict.OfHolders(nil, 2, 2), verdict.Unsafe},
		"a smaller token":                {verdict.OfHolders(nil, 2, 1), verdict.Unsafe},
		"a lock":                         {verdict.OfError(nil), "granted"},
		"a lock that another client has": {verdict.OfError(&driver.HeldError{}), "held"},
		"an error":                       {verdict.OfError(errors.New("no server")), verdict.Refused},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
}

// recorder is a test that notes what is reported.
type recorder struct {
	testing.TB
	failed, skipped bool
	cleanup         func()
	attributes      []string
}

func (r *recorder) Helper()                {}
func (r *recorder) Errorf(string, ...any)  { r.failed = true }
func (r *recorder) Failed() bool           { return r.failed }
func (r *recorder) Skipped() bool          { return r.skipped }
func (r *recorder) Cleanup(f func())       { r.cleanup = f }
func (r *recorder) Attr(key, value string) { r.attributes = append(r.attributes, key+"="+value) }

func TestIs(t *testing.T) {
	for what, c := range map[string]struct {
		seen          []verdict.Verdict
		fails, skips  bool // after the call
		failed, noted bool
	}{
		"no observation":             {noted: true},
		"the same":                   {seen: []verdict.Verdict{verdict.Safe}, noted: true},
		"another":                    {seen: []verdict.Verdict{verdict.Safe, verdict.Unsafe}, failed: true},
		"a test that fails":          {fails: true, failed: true},
		"a test that skips the rest": {skips: true},
	} {
		r := &recorder{TB: t}
		verdict.Is(r, "Redis: it rains", verdict.Safe, c.seen...)
		r.failed, r.skipped = r.failed || c.fails, c.skips
		r.cleanup()
		noted := len(r.attributes) == 1 && r.attributes[0] == "verdict=Redis: it rains = safe"
		if r.failed != c.failed || noted != c.noted || !noted && len(r.attributes) > 0 {
			t.Errorf("%s: failed %v, noted %q", what, r.failed, r.attributes)
		}
	}
}
