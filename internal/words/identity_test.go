package words_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/words"
)

func TestHost(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		id   driver.Identity
		text string
		back string // the trace that is read; the host is always the same
	}{
		{driver.Identity{Host: "db1"}, "db1", ""},
		{driver.Identity{}, "", ""},
		{driver.Identity{Host: "db1", Trace: trace}, "db1#" + trace, trace},
		{driver.Identity{Trace: trace}, "#" + trace, trace},
		{driver.Identity{Host: "db#1", Trace: trace}, "db#1#" + trace, trace},
		{driver.Identity{Host: "db#1"}, "db#1", ""},
		{driver.Identity{Host: "db1", Trace: "not a trace"}, "db1", ""},
	} {
		text := words.Host(c.id)
		if text != c.text {
			t.Errorf("%+v is written as %q, want %q", c.id, text, c.text)
		}
		got := driver.Identity{Trace: "old"}
		if words.SetHost(&got, text); got.Host != c.id.Host || got.Trace != c.back {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
