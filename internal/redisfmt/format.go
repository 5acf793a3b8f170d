package redisfmt

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
)

// Millis formats a duration for a script, rounded up: a lease must not expire on the server before
// it ends for its holder.
func Millis(d time.Duration) string { return Decimal(CeilMillis(d)) }

// CeilMillis returns a duration in milliseconds, rounded up.
func CeilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Decimal formats a token, or a time of a server's clock.
func Decimal(n int64) string { return strconv.FormatInt(n, 10) }

// Number parses a number. Invalid text is 0, which is never a time or a token.
func Number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// Letter returns the letter of a mode in scripts and messages.
func Letter(m driver.Mode) string {
	if m == driver.Shared {
		return "s"
	}
	return "x"
}

// ModeOf returns the mode of a letter.
func ModeOf(letter string) driver.Mode {
	if letter == "s" {
		return driver.Shared
	}
	return driver.Exclusive
}

// Identity formats an identity as the last words of a description: the process ID, a HostText,
// and the note, which comes last since it may contain spaces.
func Identity(id driver.Identity) string {
	return fmt.Sprintf("%d %s %s", id.PID, HostWord(identity.HostText(id)), id.Note)
}

// HostWord makes a host name a single word without spaces.
func HostWord(host string) string {
	if host == "" {
		return "-"
	}
	return strings.ReplaceAll(host, " ", "_")
}

// Host reverses HostWord, except for replaced spaces.
func Host(word string) string {
	if word == "-" {
		return ""
	}
	return word
}

// ParseInfo parses an answer to INFO: lines of "name:value". Under RESP3 it may start with the
// prefix "txt:".
func ParseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// ParseTime parses an answer to TIME: seconds and microseconds on two lines.
func ParseTime(text string) (at time.Time, ok bool) {
	seconds, micros, _ := strings.Cut(text, "\n")
	s, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	if err != nil {
		return at, false
	}
	us, err := strconv.ParseInt(strings.TrimSpace(micros), 10, 64)
	return time.UnixMicro(s*1_000_000 + us), err == nil
}
