package page

import (
	"fmt"
	"strconv"
	"time"
)

// span formats a duration with three digits: "440 µs", "1.74 s", "2 min 5 s".
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "0 s"
	case d >= 100*time.Second:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= 999500*time.Microsecond:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= 999500*time.Nanosecond:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g µs", float64(d)/1e3)
}

// number writes thousands with commas.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// count formats a number with its noun: "1 loss", "1,313 acquisitions".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}
