package drivertest

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
)

// Cases returns the questions of the exam, the simple ones first.
func Cases() []Case {
	return []Case{
		question("exclusion", all, exclusion),
		question("no-reentrance", all, noReentrance),
		question("try-held", all, tryHeld),
		question("no-steal", leased, noSteal),
		question("ended-context", all, endedContext),

		question("expiry", leased, expiry),
		question("crash-frees", unleased, crashFrees),
		question("renew-expired", leased, renewExpired),

		question("release-owner-checked", all, releaseOwnerChecked),
		question("release-twice", all, releaseTwice),
		question("late-release", all, lateRelease),

		question("token-increasing", all, tokenIncreasing),
		question("token-constant", all, tokenConstant),
		question("floor", all, floor),

		question("fifo", fairToAll, fifo),
		question("order-process", fairToProcesses, orderProcess),
		question("no-barging", ordered, noBarging),
		question("wake-up", all, wakeUp),
		question("dead-waiter", ordered, deadWaiter),
		question("frozen-waiter", ordered, frozenWaiter),
		question("cancelled-waiter", all, cancelledWaiter),
		question("cancel-race", all, cancelRace),
		question("silent-waiter", all, silentWaiter),
		question("waiting-once", all, waitingOnce),
		question("panicking-callback", all, panickingCallback),
		question("unreachable", all, unreachable),
		question("outage", all, outage),

		question("shared", all, shared),
		question("limit", limits, limit),
		question("limit-unsupported", noLimits, limitUnsupported),
		question("writer-not-starved", ordered, writerNotStarved),
		question("weights", limits, weights),
		question("weight-not-passed", orderedLimits, weightNotPassed),
		question("resize", limits, resize),
		question("all-or-none", all, allOrNone),

		question("names", all, names),
		question("bad-input", all, badInput),
		question("at-least", all, atLeast),
		question("thousand", all, thousand),
		question("list", all, list),
		question("break", all, breaks),
		question("break-minimum", all, breaksMinimum),
		question("lost-callback", all, lostCallback),
		question("loss-before-grant", leased, lossBeforeGrant),
	}
}

// question makes a Case of a function that talks to one world.
func question(name string, needs func(driver.Traits) bool, ask func(*sitting)) Case {
	return Case{Name: name, Needs: needs, Run: func(t testing.TB, e Exam) {
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
func ordered(t driver.Traits) bool         { return t.Order != driver.OrderNone }
func orderedLimits(t driver.Traits) bool   { return ordered(t) && limits(t) }
func fairToAll(t driver.Traits) bool       { return t.Order == driver.OrderAll }
func fairToProcesses(t driver.Traits) bool { return t.Order == driver.OrderProcess }
