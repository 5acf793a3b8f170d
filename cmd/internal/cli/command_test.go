//go:build unix

package cli

import (
	"bytes"
	"testing"
)

// TestDirectoryOfOneUserIsTold: without a URL, a message says that the locks are those of one user
// on one host, and how to share locks with others.
func TestDirectoryOfOneUserIsTold(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }
	const several = "; for several hosts set FENCELOCK_URL=redis://..., for several users FENCELOCK_URL=file:///path?group=NAME\n"
	for _, c := range []struct {
		url  string
		uid  int
		want string
	}{
		{"", 1000, "fencelock: using locks of this host, for this user only, in /home/u/.local/state/fencelock" + several},
		{"", 0, "fencelock: using locks of this host, for root only, in /var/lib/fencelock" + several},
		{"file:///srv/locks", 1000, ""},
	} {
		var out bytes.Buffer
		sayDirectory(&App{URL: c.url, Stderr: &out}, c.uid, env)
		if got := out.String(); got != c.want {
			t.Errorf("%q as %d: %q, want %q", c.url, c.uid, got, c.want)
		}
	}
}
