package recordlock_test

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// TestMutants fails unless the tests of this package find each change of a file that makes the engine
// unsafe.
func TestMutants(t *testing.T) {
	explore.Catch(t, []explore.Mutant{
		explore.Change("a lease counts from the sending of the request that showed it", "step.go", "TestLeaseCountsFromTheAnswer",
			"w.number++\n", "w.number++\n\tw.idle = time.Now()\n",
			"if w.state == nil ||", "now = w.idle\n\tif w.state == nil ||"),
		explore.Change("there is no second write after an unknown outcome", "acquire.go", "TestSecondWriteAfterAnUnknownOutcome",
			"_ moment) (answer, error) {\n\t\tst.undo", "_ moment) (answer, error) {\n\t\tif st.holder(a.me.Owner) == nil && find(st.Waiters, a.me.Owner) < 0 {\n\t\t\treturn refused, nil\n\t\t}\n\t\tst.undo"),
		explore.Change("there is none after a refusal", "step.go", "TestSecondWriteAfterARefusal",
			"case j.unsure:", "case false:"),
		explore.Change("a process that asks once trusts the store's clock alone", "lease.go", "TestOneShotTrustsNoClockAlone",
			"max(byStore, byWall)", "byStore+0*byWall"),
		explore.Change("a process that asks once trusts the wall clocks alone", "lease.go", "TestOneShotTrustsNoClockAlone",
			"max(byStore, byWall)", "byWall+0*byStore"),
		explore.Change("a request keeps the token of an attempt that was executed late", "acquire.go", "TestFirstSwapArrivesLate",
			"if closed || st.holder(a.me.Owner) != nil { // by an attempt whose answer was lost",
			"_ = closed\n\tif h := st.holder(a.me.Owner); h != nil {\n\t\ta.grant.Token, a.grant.Sent = h.Token, m.now\n\t\treturn stored, nil"),
		explore.Change("a token is issued while the store's clock cannot be read", "lease.go", "TestNoTokenWithoutTheClock",
			"return !m.known && !m.none", "return false"),
		explore.Change("a grant continues the lease of its place", "state.go", "TestGrantIsNotItsPlace",
			"if c.Ticket > 0 {", "if false {"),
		explore.Change("a missed grant keeps its minimum hold", "acquire.go", "TestMissedGrantEndsItsMinimumHold",
			"st.undo(a.me.Owner)", "st.remove(a.me.Owner)"),
		explore.Change("a repeated grant has a beat of its earlier attempt", "acquire.go", "TestRepeatedGrantIsANewLease",
			"h.start(a.req.TTL, h.Token, m)", "h.TTL = a.req.TTL.Microseconds()\n\th.renew(m)"),
		explore.Change("a request is refused by a record that was read before it", "step.go", "TestRefusalsAreReadAgain",
			"case w.answered <= j.after:", "case false:"),
		explore.Change("a token counts however long its process was frozen", "step.go", "TestFrozenBeforeTheSwap",
			"m.age(now) > storeLimit", "m.age(now) > 1000*storeLimit"),
		explore.Change("a request that has left is given up before its minimum hold is over", "acquire.go", "TestMinimumHoldOfAGrantThatIsOver",
			"max(a.req.TTL, a.req.MinHold, callLimit)", "max(a.req.TTL, callLimit)"),
		explore.Change("a request waits for its own minimum hold", "acquire.go", "TestMinimumHoldOfAGrantThatIsOver",
			"if closed || st.holder", "_ = closed\n\tif st.holder"),
		explore.Change("a request is granted while the engine is being closed", "acquire.go", "TestCloseMeetsAGrant",
			"if a.err == nil && a.worker.engine.tasks.Refuses()", "if false"),
		explore.Change("a grant whose caller does not know of it outlives the engine", "worker.go", "TestCloseMeetsAGrant",
			"w.withdraw(a, errClosed, now)", "_ = a"),
		explore.Change("a closed engine leaves what it has stored", "worker.go", "TestAcquireMeetsClose",
			"w.withdraw(j.acquires, errClosed, now)", "w.finish(j, errClosed)"),
		explore.Change("what may have been stored stays after an ErrConfig", "worker.go", "TestConfigErrorAfterAnUnknownOutcome",
			"w.withdraw(j.acquires, err, now)", "w.finish(j, err)"),
		explore.Change("an ErrConfig ends what withdraws a request", "worker.go", "TestConfigErrorAfterAnUnknownOutcome",
			"case j.until.After(now), large", "case large"),
	})
}
