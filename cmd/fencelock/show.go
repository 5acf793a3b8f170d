//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// show returns a name, host or other word fit for a terminal and for a column:
// quoted as in Go when it is empty or contains a space or anything unprintable.
func show(word string) string {
	if word == "" || strings.ContainsRune(word, ' ') {
		return strconv.Quote(word)
	}
	return showText(word)
}

// showText returns free text fit for a terminal: quoted as in Go when it
// contains anything unprintable or could be taken for quoted text.
func showText(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.Quote(text)
		}
	}
	if strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

// place says where an acquisition or a waiter lives.
func place(id driver.Identity) string {
	if id.PID == 0 && id.Host == "" {
		return "unknown"
	}
	return fmt.Sprintf("%d@%s", id.PID, show(id.Host))
}

// stamp is a time as the command prints it; the zero time is null in JSON.
type stamp time.Time

const stampLayout = "2006-01-02T15:04:05.000Z"

func (s stamp) String() string {
	if time.Time(s).IsZero() {
		return "unknown"
	}
	return time.Time(s).UTC().Format(stampLayout)
}

// MarshalJSON returns the time in UTC to the millisecond.
func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(s.String())
}

// left is what is left of a lease as people read it.
func left(ttl time.Duration) string {
	if ttl == 0 {
		return "none"
	}
	return ttl.Round(100 * time.Millisecond).String()
}

// printJSON writes v as one line, with everything unprintable escaped.
func printJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(data) {
		switch {
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF)
		}
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}
