package idempotent

import (
	"fmt"
	"regexp"
	"strings"
)

// keyItem is a quoted string with parameters, which are ignored (RFC 9651).
var keyItem = regexp.MustCompile(`^"((?:[^"\\]|\\["\\])*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` +
	`-?\d{1,15}(?:\.\d{1,3})?|@-?\d{1,15}|\?[01]|%?"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*))?)*$`)

// headerKey parses the key: a quoted string (RFC 9651) or, as many clients send it, an unquoted
// one. If the key is invalid, it returns what is wrong, for the client.
func headerKey(values []string) (key, wrong string) {
	switch {
	case len(values) == 0:
		return "", "this request needs an Idempotency-Key header, such as a UUID in double quotes"
	case len(values) > 1:
		return "", fmt.Sprintf("this request has %d Idempotency-Key headers: send one", len(values))
	}
	inner := strings.Trim(values[0], " \t")
	if strings.ContainsFunc(inner, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", "the Idempotency-Key has a character that is not printable ASCII: use a UUID, for example"
	}
	if strings.HasPrefix(inner, `"`) {
		item := keyItem.FindStringSubmatch(inner)
		if item == nil {
			return "", `the Idempotency-Key begins with a double quote but is not one quoted string (RFC 9651), such as "a-key": \" and \\ are its only escapes`
		}
		inner = unescape.Replace(item[1])
	} else if strings.ContainsAny(inner, " ,;\"\\") {
		return "", `an Idempotency-Key with a space, comma, semicolon, double quote or backslash must be in double quotes, such as "a key"`
	}
	if len(inner) == 0 || len(inner) > maxHeaderKey {
		return "", fmt.Sprintf("the Idempotency-Key has %d characters: it needs 1 to %d", len(inner), maxHeaderKey)
	}
	return inner, ""
}

// unescape replaces the escapes of a quoted string.
var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
