//go:build unix

package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/termtext"
)

// tallest is how many bytes a character may have with all its marks. Terminals draw more marks over
// other lines.
const tallest = 24

// barWidth is the width of the bar of a lease.
const barWidth = 5

// fallbacks are for terminals that show only ASCII.
var fallbacks = map[rune]string{'▸': ">", '…': "~", '▼': "v", '▲': "^", '━': "="}

// word returns a name or a host for a cell.
func word(s string) string { return flat(termtext.Word(s)) }

// text returns free text for a cell.
func text(s string) string { return flat(termtext.Text(s)) }

// line returns an error for a cell.
func line(err error) string { return flat(termtext.Line(err.Error())) }

// flat quotes a text with a character that has too many marks.
func flat(s string) string {
	for g := displaywidth.StringGraphemes(s); g.Next(); {
		if len(g.Value()) > tallest {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// printable returns what is printable of a text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// process returns where a holder or waiter runs, as other commands print it.
func (m member) process() string {
	switch {
	case m.Foreign && m.PID != 0:
		return fmt.Sprintf("foreign:%d", m.PID)
	case m.Foreign && m.Host != "" && m.Owner == m.Host:
		return "foreign:" + word(m.Owner)
	case m.Foreign:
		return "foreign"
	case m.PID == 0 && m.Host == "":
		return "unknown"
	}
	return fmt.Sprintf("%d@%s", m.PID, word(m.Host))
}

// lease draws what is left of a lease, as a bar and as a duration.
func (m member) lease() string {
	if m.TTL <= 0 || m.Lease <= 0 {
		return strings.Repeat(" ", barWidth) + fmt.Sprintf("%5s", span(m.TTL))
	}
	full := int(min(m.TTL, m.Lease) * barWidth / m.Lease)
	return strings.Repeat("━", full) + strings.Repeat("-", barWidth-full) + fmt.Sprintf("%5s", span(m.TTL))
}

// number formats a number; "" for 0, which means none or unknown.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// clock formats a time of the day in UTC; "" if the time is unknown.
func clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.TimeOnly)
}

// span formats a duration in at most six columns; "" for 0.
func span(d time.Duration) string {
	s := int(d / time.Second)
	switch {
	case d == 0:
		return ""
	case s < 10:
		return fmt.Sprintf("%d.%ds", s, d%time.Second/(100*time.Millisecond))
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 60*60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*60*60:
		return fmt.Sprintf("%dh%02dm", s/60/60, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/60/60/24, s/60/60%24)
}
