package driver

import "strings"

// ValidTrace reports whether text is a traceparent as W3C Trace Context, version 00, writes
// it: "00-", the 32 hexadecimal digits of a trace, "-", the 16 of a span, "-", and two of
// flags. Digits are in lower case, and neither trace nor span is all zeros.
func ValidTrace(text string) bool {
	if len(text) != 55 || !strings.HasPrefix(text, "00-") { // most requests have none
		return false
	}
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return false
	}
	for i, digits := range [...]int{2, 32, 16, 2} {
		if len(parts[i]) != digits || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}
