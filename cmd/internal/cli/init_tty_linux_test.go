package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestInitAsks: on a terminal, init asks for confirmation and accepts only the full word yes.
func TestInitAsks(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	url := "redis://" + server.Addr() + "?quarantine=on"
	for _, c := range []struct {
		answer string
		code   int
		says   string
	}{
		{"y\n", ExitUsage, "fencelock: nothing was changed\n"},
		{"\x04", ExitUsage, "fencelock: nothing was changed\n"}, // end of file
		{"yes\n", 0, "fencelock: the servers are declared new and grant locks at once\n"},
	} {
		master, slave := openPty(t)
		_, err := io.WriteString(master, c.answer)
		must(t, err)
		var out, talk bytes.Buffer
		code := run([]string{"--url", url, "init"}, slave, &out, &talk)
		if code != c.code || out.Len() > 0 || !strings.HasSuffix(talk.String(), "Is it certain that no process does? [yes/no] "+c.says) {
			t.Errorf("%q: code %d, stdout %q, stderr %q", c.answer, code, out.String(), talk.String())
		}
		slave.Close()
		master.Close()
		if marked := server.Do(t, "EXISTS", "fencelock:incarnation") == "1"; marked != (c.code == 0) {
			t.Errorf("%q: marked %v", c.answer, marked)
		}
	}
}
