package page

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// span formats a duration with three digits: "0.44 ms", "180 ms", "1.74 s", "2 min 5 s".
func span(d time.Duration) string {
	if d < 0 {
		return "\u2212" + span(-d)
	}
	switch {
	case d == 0:
		return "0 s"
	case d < 10*time.Microsecond:
		return digits(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6) + " ms"
	case d < 100*time.Second:
		return digits(d.Seconds()) + " s"
	}
	d = d.Round(time.Second)
	text := fmt.Sprintf("%d min", d/time.Minute)
	if rest := d % time.Minute; rest > 0 {
		text += fmt.Sprintf(" %d s", rest/time.Second)
	}
	return text
}

// digits formats a number below 1,000 with up to three digits.
func digits(x float64) string {
	places := 2
	if x >= 99.5 {
		places = 0
	} else if x >= 9.95 {
		places = 1
	}
	text := strconv.FormatFloat(x, 'f', places, 64)
	if places > 0 && strings.Trim(text[strings.Index(text, ".")+1:], "0") == "" {
		return text[:strings.Index(text, ".")]
	}
	return text
}

// moment formats a time of the run: "33.961 s".
func moment(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

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
	if n != 1 {
		if strings.HasSuffix(noun, "s") {
			noun += "e"
		}
		noun += "s"
	}
	return number(n) + " " + noun
}
