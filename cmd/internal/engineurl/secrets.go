//go:build unix

package engineurl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// HintError is an error with a hint. It is returned if the server is unreachable, if it refuses the
// connection, or if the URL is wrong.
type HintError struct {
	Err  error
	Hint string // such as "check the name of the database in FENCELOCK_URL"
}

// Error returns what went wrong, without the hint.
func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HintError) Unwrap() error { return e.Err }

// The hints for a server that is unreachable, and for one that may be up but does not use TLS as
// the URL demands.
const (
	hintUnreachable = "check --url or FENCELOCK_URL, and that the server is up"
	hintPooler      = "check the user, the password, the database and the parameters in FENCELOCK_URL: the pooler refuses them, or has no server"
	hintTLS         = "check that the server and FENCELOCK_URL agree about TLS, and that its certificate is for the host in the URL and from an authority that this host or the URL names"
)

// unreachable returns the hint for the error of a server that is unreachable.
func unreachable(err error) string {
	if strings.Contains(err.Error(), "(SQLSTATE 08P01)") { // the refusal of a pooler, after one of TLS perhaps
		return hintPooler
	}
	for _, sign := range []string{"x509: ", "tls: ", "TLS", "HTTPS client"} {
		if strings.Contains(err.Error(), sign) {
			return hintTLS
		}
	}
	return hintUnreachable
}

// explain returns the error of a store of records with a hint, which is config if the store refuses the
// request for good. The text has no secrets, and begins with where.
func explain(err error, hide secrets, where, config string) error {
	kind, hint := driver.ErrUnavailable, unreachable(err)
	if errors.Is(err, driver.ErrConfig) {
		kind, hint = driver.ErrConfig, config
	}
	text := strings.TrimPrefix(hide.Hide(driver.OneLine(err).Error()), kind.Error()+": ")
	return &HintError{Err: fmt.Errorf("%w: %s%s", kind, where, text), Hint: hint}
}

// secretParts matches the parts of a URL that may contain a password: the user, unless it is the
// placeholder "[user:password@]", and parameters. It is compiled on first use, since most runs of the
// command have no error.
var secretParts = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(//)[^\s[]\S*(@)|([?&][\w-]*(?:pass|password|passwd|pwd|secret|token|listen)=)[^\s&"']*`)
})

// Redact replaces the user and password of every URL in s, and the values of parameters that may be
// secret.
func Redact(s string) string { return secretParts().ReplaceAllString(s, "${1}${3}redacted${2}") }

// HasScheme reports whether s begins as a URL of locks does.
func HasScheme(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && schemeOf(strings.ToLower(scheme)) != nil
}

// hidden replaces a password.
const hidden = "(password not shown)"

// secrets are the passwords of one URL. They are replaced by value, since errors of clients also
// contain them outside a URL, where userinfo does not match.
type secrets []string

// keep adds a password, unless it is empty.
func (s *secrets) keep(secret string) {
	if secret != "" {
		*s = append(*s, secret)
	}
}

// shortSecret is the length below which a password may be part of an ordinary word.
const shortSecret = 4

// Hide removes the passwords from text. A short one is removed only where it is a word of its own,
// since the text would be unreadable otherwise.
func (s secrets) Hide(text string) string {
	for _, secret := range s {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, hidden)
			continue
		}
		word := regexp.MustCompile(`(^|[^\pL\pN])` + regexp.QuoteMeta(secret) + `($|[^\pL\pN])`)
		for range 2 { // two in a row share the character between them
			text = word.ReplaceAllString(text, "${1}"+hidden+"${2}")
		}
	}
	return text
}
