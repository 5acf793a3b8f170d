//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
)

// dataWriter is stdout. A failed write has an exit code of its own, since 1 means something else,
// such as that nobody holds a name.
type dataWriter struct{ to io.Writer }

// Write writes p.
func (w dataWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		err = Exit(ExitOutput, err)
	}
	return n, err
}

// place returns the process and host of a holder or a waiter, as PID@HOST.
func place(id driver.Identity) string {
	if id.PID == 0 && id.Host == "" {
		return "unknown"
	}
	return fmt.Sprintf("%d@%s", id.PID, termtext.Word(id.Host))
}

// holderPlace returns where a holder runs. Of a foreign holder the engine may know the process of
// the server, or its name on Kubernetes.
func holderPlace(h driver.Holder) string {
	switch {
	case h.Foreign && h.PID != 0:
		return fmt.Sprintf("foreign:%d", h.PID)
	case h.Foreign && h.Host != "" && h.Owner == h.Host:
		return "foreign:" + termtext.Word(h.Owner)
	case h.Foreign:
		return "foreign"
	}
	return place(h.Identity)
}

// stamp is a time as the command prints it: in UTC and with milliseconds, so that lines of several
// hosts can be sorted. The zero time is null in JSON.
type stamp time.Time

// stampLayout is RFC 3339 with always three digits of milliseconds.
const stampLayout = "2006-01-02T15:04:05.000Z"

// IsZero reports whether the time is unknown.
func (s stamp) IsZero() bool { return time.Time(s).IsZero() }

// String returns the time, or "unknown".
func (s stamp) String() string {
	if s.IsZero() {
		return "unknown"
	}
	return time.Time(s).UTC().Format(stampLayout)
}

// MarshalJSON returns the time as String does, or null.
func (s stamp) MarshalJSON() ([]byte, error) {
	if s.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(s.String())
}

// left formats the rest of a lease.
func left(ttl time.Duration) string {
	if ttl == 0 {
		return "none"
	}
	return ttl.Round(100 * time.Millisecond).String()
}

// maxLeft formats the rest of a maximum hold. After its end a holder still has the lock during its
// grace, on files until its work returns, and if it has got more time, as by fencelock renew.
func maxLeft(h driver.Holder) string {
	until := h.MaxUntil()
	rest := time.Until(until)
	switch {
	case until.IsZero():
		return "-"
	case rest <= 0:
		return "over"
	case rest >= time.Minute:
		return rest.Round(time.Second).String()
	}
	return rest.Round(100 * time.Millisecond).String()
}

// Print writes v as a line of JSON if --json is set, and text otherwise.
func (a *App) Print(v any, text string) error {
	if a.json {
		return printJSON(a.stdout, v)
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

// printList writes each element of list as a line of JSON if --json is set, and the text of all
// otherwise.
func printList[T, V any](a *App, list []T, view func(T) V, text func([]T) string) error {
	if !a.json {
		return a.Print(nil, text(list))
	}
	for _, x := range list {
		if err := printJSON(a.stdout, view(x)); err != nil {
			return err
		}
	}
	return nil
}

// printToken writes a new token to stdout. The token cannot be read again later. So if the write
// fails, for example because the pipe has no reader, the error contains the token.
func (a *App) printToken(token int64, v any) error {
	OutliveReaders()
	if err := a.Print(v, fmt.Sprintln(token)); err != nil {
		return fmt.Errorf("the new token %d could not be written to stdout: %w", token, err)
	}
	return nil
}

// columns aligns rows of tab-separated cells below a head. It returns "" without rows.
func columns(head string, rows []string) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head+"\n"+strings.Join(rows, "\n"))
	_ = w.Flush() // a Builder does not fail
	return b.String()
}

// printJSON writes v as one line. It escapes everything unprintable, since names and notes may
// contain terminal control sequences, which encoding/json does not escape. Beyond the basic
// multilingual plane, JSON needs a surrogate pair.
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
