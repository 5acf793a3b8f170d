//go:build unix

package engineurl_test

import (
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
)

// TestHide: passwords are not shown, and a short one leaves the words alone that contain it.
func TestHide(t *testing.T) {
	for _, c := range []struct{ secret, text, want string }{
		{"hunter2", "user:hunter2@host, xhunter2y", "user:(password not shown)@host, x(password not shown)y"},
		{"p", `invalid username-password pair for "p" and u:p@h`, `invalid username-password pair for "(password not shown)" and u:(password not shown)@h`},
		{"aa", "aaa aa", "aaa (password not shown)"},
		{"é", "café é", "café (password not shown)"},
		{"", "nothing", "nothing"},
	} {
		if got := engineurl.Hide(c.secret, c.text); got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.secret, c.text, got, c.want)
		}
	}
}
