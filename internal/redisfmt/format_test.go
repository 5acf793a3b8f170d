package redisfmt_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", time.Nanosecond: "1", time.Millisecond: "1", time.Second + 1: "1001"} {
		if got := redisfmt.Millis(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestRoundTrips: what is read is what was written.
func TestRoundTrips(t *testing.T) {
	for _, m := range []driver.Mode{driver.Exclusive, driver.Shared} {
		if got := redisfmt.ModeOf(redisfmt.Letter(m)); got != m {
			t.Errorf("mode %v became %v", m, got)
		}
	}
	for host, want := range map[string]string{"": "", "a": "a", "two words": "two_words"} {
		if got := redisfmt.Host(redisfmt.HostWord(host)); got != want {
			t.Errorf("host %q became %q", host, got)
		}
	}
	if n := redisfmt.Number(redisfmt.Decimal(-7)); n != -7 {
		t.Errorf("-7 became %d", n)
	}
}

func TestParseInfo(t *testing.T) {
	info := redisfmt.ParseInfo("txt:# Server\r\nredis_version:7.2.4\r\nexecutable:/a:b\r\n")
	if len(info) != 2 || info["redis_version"] != "7.2.4" || info["executable"] != "/a:b" {
		t.Errorf("read %v", info)
	}
}

func TestParseTime(t *testing.T) {
	if at, ok := redisfmt.ParseTime("1700000000\n42\n"); !ok || at.UnixMicro() != 1_700_000_000_000_042 {
		t.Errorf("read %v, %t", at, ok)
	}
	for _, text := range []string{"", "1700000000", "a\n1", "1\nb", "NOPERM no\n"} {
		if at, ok := redisfmt.ParseTime(text); ok {
			t.Errorf("%q is %v", text, at)
		}
	}
}
