package cli

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// A waiter gives back what its start needed of the program, which is most of its memory.
func TestMemoryOfAWaiter(t *testing.T) {
	t.Parallel()
	const most = 6 << 10 // kB; without it 12 MB and more
	h := newHost(t)
	defer h.holdUntil(t, h.path("free"))()
	waiter := h.command("fencelock", "run", "x", "--", "true")
	must(t, waiter.Start())
	defer waiter.Wait()
	defer waiter.Process.Kill()
	h.waits(t)
	eventually(t, "it keeps little memory", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", waiter.Process.Pid))
		must(t, err)
		m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
		if m == nil {
			return false
		}
		kept, err := strconv.Atoi(string(m[1]))
		return err == nil && kept <= most
	})
}
