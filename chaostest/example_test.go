package chaostest_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest"
	"github.com/fencelock/fencelock/chaostest/history"
)

// A test of a service that is killed, and whose connections are cut for two seconds. The service
// records what it does with its locks; see package record.
func Example() {
	const ttl = 10 * time.Second // of the service
	t := new(testing.T)          // of the test
	run := chaostest.New(t)
	link := run.Proxy("127.0.0.1:6379")
	start := func(worker string) *chaostest.Process {
		return run.Start(worker, exec.Command("./service", "--redis", link.Addr()))
	}
	first := start("first")
	run.Await("acquisition", func(h *history.History) bool { return len(h.Acquisitions) > 0 })
	start("second")

	end := run.Fault("cut")
	link.Drop(chaostest.Both)
	time.Sleep(2 * time.Second)
	if err := link.Heal(); err != nil {
		t.Fatal(err)
	}
	end()

	first.Kill()
	before := run.Check(history.Rules{})
	run.Await("acquisition after the death", func(h *history.History) bool {
		return len(h.Acquisitions) > len(before.Acquisitions)
	})
	run.Check(history.Rules{Death: ttl + time.Second})
}
