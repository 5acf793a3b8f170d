//go:build unix

package engineurl

import (
	"regexp"
	"strings"
	"sync"
)

// HintError is an error of an engine that is out of reach or refuses us, with what a
// person may do about it.
type HintError struct {
	Err  error
	Hint string // such as "check the name of the database in FENCELOCK_URL"
}

// Error returns what went wrong, without the hint.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HintError) Unwrap() error { return e.Err }

// hintUnreachable is what to do about a server that does not answer.
const hintUnreachable = "check --url or FENCELOCK_URL, and that the server is up"

// userinfo is the part of a URL that may hold a password. It is compiled when the first
// error is told: most starts of the command have none.
var userinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(//)\S*@`) })

// Redact hides the user and password of every URL in s.
func Redact(s string) string { return userinfo().ReplaceAllString(s, "${1}redacted@") }

// hidden stands in the place of a secret.
const hidden = "(password not shown)"

// secrets is the passwords of one URL. Clients repeat them in their errors, in forms that
// a pattern does not find.
type secrets []string

// keep adds one. An empty one is none.
func (s *secrets) keep(secret string) {
	if secret != "" {
		*s = append(*s, secret)
	}
}

// hide takes the secrets out of a text.
func (s secrets) hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}
