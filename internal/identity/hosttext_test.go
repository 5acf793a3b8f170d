package identity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
)

func TestHost(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		id   driver.Identity
		text string
		back string // the trace that is read
		kind string // the kind that is read; the host and the maximum hold are always the same
	}{
		{driver.Identity{Host: "db1"}, "db1", "", ""},
		{driver.Identity{}, "", "", ""},
		{driver.Identity{Host: "db1", Trace: trace}, "db1#" + trace, trace, ""},
		{driver.Identity{Trace: trace}, "#" + trace, trace, ""},
		{driver.Identity{Host: "db#1", Trace: trace}, "db#1#" + trace, trace, ""},
		{driver.Identity{Host: "db#1"}, "db#1", "", ""},
		{driver.Identity{Host: "db1", Trace: "not a trace"}, "db1", "", ""},
		{driver.Identity{Host: "db1", Kind: "election"}, "db1#kind=election", "", "election"},
		{driver.Identity{Host: "db1", Kind: "my-kind_2.x", Trace: trace}, "db1#kind=my-kind_2.x#" + trace, trace, "my-kind_2.x"},
		{driver.Identity{Kind: "cron"}, "#kind=cron", "", "cron"},
		{driver.Identity{Host: "db#1", Kind: "cron"}, "db#1#kind=cron", "", "cron"},
		{driver.Identity{Host: "db1#kind="}, "db1#kind=", "", ""},
		{driver.Identity{Host: "db1", Kind: "two words"}, "db1", "", ""},
		{driver.Identity{Host: "db1", Kind: "a#b"}, "db1", "", ""},
		{driver.Identity{Host: "db1", Kind: strings.Repeat("k", 33)}, "db1", "", ""},
		{driver.Identity{Host: "db1", MaxHold: 10 * time.Minute}, "db1#max=600000", "", ""},
		{driver.Identity{Host: "db1", MaxHold: time.Second, Trace: trace}, "db1#max=1000#" + trace, trace, ""},
		{driver.Identity{Host: "db1", Kind: "cron", MaxHold: time.Second, Trace: trace}, "db1#kind=cron#max=1000#" + trace, trace, "cron"},
		{driver.Identity{Host: "db1", Kind: "cron", MaxHold: time.Second}, "db1#kind=cron#max=1000", "", "cron"},
		{driver.Identity{MaxHold: driver.MaxDuration.Truncate(time.Millisecond)}, fmt.Sprint("#max=", driver.MaxDuration.Milliseconds()), "", ""},
		{driver.Identity{Host: "db#max=", MaxHold: time.Second}, "db#max=#max=1000", "", ""},
		{driver.Identity{Host: "db#max=01"}, "db#max=01", "", ""},
		{driver.Identity{Host: "db#max=-5"}, "db#max=-5", "", ""},
		{driver.Identity{Host: "db#max=9999999999999999"}, "db#max=9999999999999999", "", ""},
	} {
		text := identity.HostText(c.id)
		if text != c.text {
			t.Errorf("%+v is written as %q, want %q", c.id, text, c.text)
		}
		got := driver.Identity{Trace: "old", Kind: "old", MaxHold: 1}
		if identity.ParseHostText(&got, text); got.Host != c.id.Host || got.Trace != c.back || got.Kind != c.kind || got.MaxHold != c.id.MaxHold {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
