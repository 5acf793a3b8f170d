package redistest_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 3)
	if got := s.WaitMaster(t, ""); got != s.Master().Addr() || len(s.Addrs()) != 3 {
		t.Fatalf("master %s, want %s; sentinels %v", got, s.Master().Addr(), s.Addrs())
	}
	s.Master().Do(t, "SET", "a", "1")
	s.Master().Do(t, "WAIT", "1", "0")
	s.Master().Freeze(t)
	if got := s.WaitMaster(t, s.Master().Addr()); got != s.Replica().Addr() {
		t.Errorf("new master %s, want %s", got, s.Replica().Addr())
	}
	if got := s.Replica().Do(t, "GET", "a"); got != "1" {
		t.Errorf("on the new master: %q", got)
	}
	s.Master().Thaw(t)
	s.Master().WaitLink(t)
	if got := s.Master().Do(t, "ROLE"); !strings.HasPrefix(got, "slave") {
		t.Errorf("the old master after its thaw: %q", got)
	}
}
