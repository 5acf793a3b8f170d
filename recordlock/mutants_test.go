package recordlock_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a change of one file that makes the engine unsafe, and the test that must notice.
type mutant struct {
	what, file string
	change     []string // pairs of a text that occurs once, and what replaces it
	fails      string
}

var mutants = []mutant{
	{"a lease counts from the sending of the request that showed it", "step.go", []string{
		"w.number++\n", "w.number++\n\tw.idle = time.Now()\n",
		"if w.state == nil ||", "now = w.idle\n\tif w.state == nil ||",
	}, "TestLeaseCountsFromTheAnswer"},
	{"there is no second write after an unknown outcome", "acquire.go", []string{
		"_ moment) (answer, error) {\n\t\tst.undo", "_ moment) (answer, error) {\n\t\tif st.holder(a.me.Owner) == nil && find(st.Waiters, a.me.Owner) < 0 {\n\t\t\treturn refused, nil\n\t\t}\n\t\tst.undo",
	}, "TestSecondWriteAfterAnUnknownOutcome"},
	{"there is none after a refusal", "step.go", []string{
		"case j.unsure:", "case false:",
	}, "TestSecondWriteAfterARefusal"},
	{"a process that asks once trusts the store's clock alone", "lease.go", []string{
		"max(byStore, byWall)", "byStore+0*byWall",
	}, "TestOneShotTrustsNoClockAlone"},
	{"a process that asks once trusts the wall clocks alone", "lease.go", []string{
		"max(byStore, byWall)", "byWall+0*byStore",
	}, "TestOneShotTrustsNoClockAlone"},
	{"a request keeps the token of an attempt that was executed late", "acquire.go", []string{
		"if closed || st.holder(a.me.Owner) != nil { // by an attempt whose answer was lost",
		"_ = closed\n\tif h := st.holder(a.me.Owner); h != nil {\n\t\ta.grant.Token, a.grant.Sent = h.Token, m.now\n\t\treturn stored, nil",
	}, "TestFirstSwapArrivesLate"},
	{"a token is issued while the store's clock cannot be read", "lease.go", []string{
		"return !m.known && !m.none", "return false",
	}, "TestNoTokenWithoutTheClock"},
	{"a grant continues the lease of its place", "state.go", []string{
		"if c.Ticket > 0 {", "if false {",
	}, "TestGrantIsNotItsPlace"},
	{"a missed grant keeps its minimum hold", "acquire.go", []string{
		"st.undo(a.me.Owner)", "st.remove(a.me.Owner)",
	}, "TestMissedGrantEndsItsMinimumHold"},
	{"a repeated grant has a beat of its earlier attempt", "acquire.go", []string{
		"h.start(a.req.TTL, h.Token, m)", "h.TTL = a.req.TTL.Microseconds()\n\th.renew(m)",
	}, "TestRepeatedGrantIsANewLease"},
	{"a request is refused by a record that was read before it", "step.go", []string{
		"case w.answered <= j.after:", "case false:",
	}, "TestRefusalsAreReadAgain"},
	{"a token counts however long its process was frozen", "step.go", []string{
		"m.age(now) > storeLimit", "m.age(now) > 1000*storeLimit",
	}, "TestFrozenBeforeTheSwap"},
	{"a request that has left is given up before its minimum hold is over", "acquire.go", []string{
		"max(a.req.TTL, a.req.MinHold, callLimit)", "max(a.req.TTL, callLimit)",
	}, "TestMinimumHoldOfAGrantThatIsOver"},
	{"a request waits for its own minimum hold", "acquire.go", []string{
		"if closed || st.holder", "_ = closed\n\tif st.holder",
	}, "TestMinimumHoldOfAGrantThatIsOver"},
	{"a request is granted while the engine is being closed", "acquire.go", []string{
		"if a.err == nil && a.worker.engine.tasks.Refuses()", "if false",
	}, "TestCloseMeetsAGrant"},
	{"a grant whose caller does not know of it outlives the engine", "worker.go", []string{
		"w.withdraw(a, errClosed, now)", "_ = a",
	}, "TestCloseMeetsAGrant"},
	{"a closed engine leaves what it has stored", "worker.go", []string{
		"w.withdraw(j.acquires, errClosed, now)", "w.finish(j, errClosed)",
	}, "TestAcquireMeetsClose"},
	{"what may have been stored stays after an ErrConfig", "worker.go", []string{
		"w.withdraw(j.acquires, err, now)", "w.finish(j, err)",
	}, "TestConfigErrorAfterAnUnknownOutcome"},
	{"an ErrConfig ends what withdraws a request", "worker.go", []string{
		"case j.until.After(now), large", "case large",
	}, "TestConfigErrorAfterAnUnknownOutcome"},
}

// TestMutants fails unless the tests of this package find each of the changes. Each is a compilation,
// so they run in make mutants; otherwise this checks that they can still be made.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel()
			dir, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			text := string(source)
			for i := 0; i < len(m.change); i += 2 {
				if n := strings.Count(text, m.change[i]); n != 1 {
					t.Fatalf("%s has %q %d times, want once", m.file, m.change[i], n)
				}
				text = strings.Replace(text, m.change[i], m.change[i+1], 1)
			}
			if os.Getenv("FENCELOCK_SLOW") == "" {
				return
			}
			changed, overlay := filepath.Join(t.TempDir(), m.file), filepath.Join(t.TempDir(), "overlay.json")
			replaced, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(dir, m.file): changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string]string{changed: text, overlay: string(replaced)} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay", overlay, "-run", "^"+m.fails+"$", ".").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.fails) {
				t.Errorf("%s did not fail: %v\n%s", m.fails, err, out)
			}
		})
	}
}
