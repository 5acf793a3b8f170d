package idempotent

import (
	"regexp"
	"strings"
)

// keyItem is a quoted string with parameters, which are ignored (RFC 9651).
var keyItem = regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` +
	`-?\d{1,15}(?:\.\d{1,3})?|@-?\d{1,15}|\?[01]|%?"(?:[^"\\]|\\.)*"|:[A-Za-z0-9+/=]*:|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*))?)*$`)

// headerKey parses the key: a quoted string (RFC 9651) or, as many clients send it, an unquoted
// one.
func headerKey(values []string) (key string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	inner := strings.Trim(values[0], " \t")
	quoted := strings.HasPrefix(inner, `"`)
	if quoted {
		item := keyItem.FindStringSubmatch(inner)
		if item == nil {
			return "", false
		}
		inner = item[1]
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		switch {
		case c < 0x20 || c > 0x7e || c == '"':
			return "", false
		case !quoted && strings.IndexByte(` ,;\`, c) >= 0:
			return "", false
		case c == '\\':
			if i++; i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", false
			}
			c = inner[i]
		}
		b.WriteByte(c)
	}
	return b.String(), 0 < b.Len() && b.Len() <= maxHeaderKey
}
