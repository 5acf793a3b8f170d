package drivertest

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// Cases returns the questions of the exam, the simple ones first.
func Cases() []Case {
	return []Case{
		newCase("exclusion", all, exclusion),
		newCase("waiting-told", all, waitingTold),
		newCase("no-reentrance", all, noReentrance),
		newCase("try-held", all, tryHeld),
		newCase("no-steal", leased, noSteal),
		newCase("ended-context", all, endedContext),

		newCase("expiry", leased, expiry),
		newCase("crash-frees", unleased, crashFrees),
		newCase("renew-expired", leased, renewExpired),

		newCase("release-owner-checked", all, releaseOwnerChecked),
		newCase("release-twice", all, releaseTwice),
		newCase("late-release", all, lateRelease),

		newCase("token-increasing", all, tokenIncreasing),
		newCase("token-constant", all, tokenConstant),
		newCase("floor", all, floor),

		newCase("fifo", fairToAll, fifo),
		newCase("order-process", fairToProcesses, orderProcess),
		newCase("no-barging", ordered, noBarging),
		newCase("wake-up", all, wakeUp),
		newCase("dead-waiter", ordered, deadWaiter),
		newCase("frozen-waiter", ordered, frozenWaiter),
		newCase("cancelled-waiter", all, cancelledWaiter),
		newCase("cancel-race", all, cancelRace),
		newCase("silent-waiter", all, silentWaiter),
		newCase("waiting-once", all, waitingOnce),
		newCase("panicking-callback", all, panickingCallback),
		newCase("unreachable", all, unreachable),
		newCase("outage", all, outage),

		newCase("shared", all, shared),
		newCase("limit", limits, limit),
		newCase("limit-unsupported", noLimits, limitUnsupported),
		newCase("writer-not-starved", ordered, writerNotStarved),
		newCase("weights", limits, weights),
		newCase("weight-not-passed", orderedLimits, weightNotPassed),
		newCase("resize", limits, resize),
		newCase("resize-lasts", limits, resizeLasts),
		newCase("all-or-none", all, allOrNone),

		newCase("rate", rates, rate),
		newCase("rate-refill", rates, rateRefill),

		newCase("names", all, names),
		newCase("bad-input", all, badInput),
		newCase("at-least", all, atLeast),
		newCase("thousand", all, thousand),
		newCase("list", all, list),
		newCase("break", all, breaks),
		newCase("break-minimum", all, breaksMinimum),
		newCase("break-owner", all, breaksOwner),
		newCase("lost-callback", all, lostCallback),
		newCase("loss-before-grant", leased, lossBeforeGrant),

		newCase("record-swap", all, recordSwap),
		newCase("record-race", all, recordRace),
		newCase("record-expiry", all, recordExpiry),
		newCase("record-list", all, recordList),
		newCase("record-apart", all, recordApart),
		newCase("record-input", all, recordInput),
		newCase("record-outage", all, recordOutage),
		newCase("record-lasts", all, recordLasts),
		newCase("record-clock", all, recordClock),
	}
}

// newCase makes a Case of a function that talks to one world.
func newCase(name string, needs func(driver.Traits) bool, ask func(*run)) Case {
	return Case{Name: name, Needs: needs, Run: func(t testing.TB, e Suite) {
		t.Helper()
		s := sit(t, e)
		defer s.end()
		ask(s)
	}}
}

func all(driver.Traits) bool               { return true }
func leased(t driver.Traits) bool          { return t.Leased }
func unleased(t driver.Traits) bool        { return !t.Leased }
func limits(t driver.Traits) bool          { return t.Limits }
func noLimits(t driver.Traits) bool        { return !t.Limits }
func rates(t driver.Traits) bool           { return t.Rates }
func ordered(t driver.Traits) bool         { return t.Order != driver.OrderNone }
func orderedLimits(t driver.Traits) bool   { return ordered(t) && limits(t) }
func fairToAll(t driver.Traits) bool       { return t.Order == driver.OrderAll }
func fairToProcesses(t driver.Traits) bool { return t.Order == driver.OrderProcess }
