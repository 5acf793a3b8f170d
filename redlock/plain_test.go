package redlock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/plainlock"
	"github.com/fencelock/fencelock/redlock"
)

// TestTextbookPrograms: what the textbook algorithm in Python and this engine see of one another, with
// renewals of a lock that the program has lost to us. The table in docs/engines/redlock.md has the results.
func TestTextbookPrograms(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	program := plainlock.Start(t, plainlock.Redlock, "lock:x", time.Hour, w.addrs()...)
	renew := func(l driver.Lease) error { return e.Renew(t.Context(), []driver.Lease{l})[0] }

	program.Expect(t, "acquire", "yes")
	program.Expect(t, "renew", "yes")
	if g, err := try(e, "x", long); err == nil {
		t.Errorf("we got its lock: %+v", g)
	}
	program.Expect(t, "release", "yes")
	_, l := take(t, e, "x", long)
	program.Expect(t, "acquire", "no") // and takes back what single nodes gave it
	program.Expect(t, "renew", "no")
	program.Expect(t, "release", "no")
	if err := renew(l); err != nil {
		t.Errorf("after its attempts: %v", err)
	}

	// A program that renews with EXPIRE shortens our lease on every node. Our renewal restores it.
	for _, r := range w {
		eventually(t, "our key on every node", func() bool { return r.Do(t, "PEXPIRE", "lock:x", "20000") == "1" })
	}
	if err := renew(l); err != nil {
		t.Errorf("after a renewal by EXPIRE: %v", err)
	}
	release(t, e, l)
	program.Expect(t, "renew", "no")
	eventually(t, "its turn", func() bool { return program.Ask(t, "acquire") == "yes" })
	program.Expect(t, "release", "yes")
}
