//go:build unix

package engineurl_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/redlock"
)

func TestParseRedlock(t *testing.T) {
	for raw, want := range map[string]redlock.Config{
		"redlock://h1,h2:2,[::1]/": {
			Nodes: []string{"h1:6379", "h2:2", "[::1]:6379"}, RetryTimeout: 4 * time.Second},
		"redlock://u:p@h1:1,h2:2,h3:3/7?max-ttl=1m&quarantine=off&eviction=allow&prefix=a:&timeout=500ms&tls=on": {
			Nodes: []string{"h1:1", "h2:2", "h3:3"}, MaxTTL: time.Minute, NoQuarantine: true, AllowEviction: true,
			Prefix: "a:", RetryTimeout: 1500 * time.Millisecond},
	} {
		u := parse(t, raw)
		c, engine, err := engineurl.ParseRedlock(u)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if d := cmp.Diff(want, engine); d != "" {
			t.Errorf("%s (-want +got):\n%s", raw, d)
		}
		full := u.Path == "/7"
		if full != (c.SelectDB == 7 && c.Username == "u" && c.Password == "p" && c.TLSConfig != nil) {
			t.Errorf("%s: the client gets db %d, user %q, TLS %v", raw, c.SelectDB, c.Username, c.TLSConfig != nil)
		}
	}
}
