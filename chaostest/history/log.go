package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ReadLog reads what a service has logged about its locks, as JSON lines of one or more processes in
// any order. [History.Judge] then finds what must not be. Lines about other things are ignored. Of a
// line about a lock, these fields are read:
//
//   - name or lock, and token: the acquisition;
//   - msg, message or event: what happened, one of "lock acquired", "lock lost", "lock released",
//     "write accepted" and "write refused", or the same without "lock". The line "acquire" of
//     fencelock's own log means "lock acquired" if it has a token and no error;
//   - time, ts or timestamp: when, as RFC 3339 or as nanoseconds since 1970;
//   - deadline: of a lost lock, until when its holder relied on it;
//   - mode, "shared" for a shared lock;
//   - process, worker, pod or host: who.
//
// A line with name, token and acquired, and with released or lost, has these times in one record.
//
// Clocks of the processes may differ by skew: h.Rules.Skew is set to that. An acquisition without an
// end, since its process died or the log ends, is not judged.
//
// If r has what [History.Write] wrote, ReadLog returns that history, with its own rules.
func ReadLog(r io.Reader, skew time.Duration) (*History, error) {
	input := bufio.NewReader(r)
	first, err := input.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	all := io.MultiReader(bytes.NewReader(first), input)
	if beginsRun(first) {
		return readRun(all)
	}
	h, lines := &History{Engine: "a log", Rules: Rules{Skew: skew}}, bufio.NewReader(all)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var l logLine
		if json.Unmarshal(line, &l) == nil {
			if wrong := l.add(h); wrong != nil {
				return nil, fmt.Errorf("line %d: %w", n, wrong)
			}
		}
		if err != nil {
			break
		}
	}
	h.join()
	return h, nil
}

// logLine is a line about a lock.
type logLine struct {
	Name, Lock                 string
	Token                      logToken
	Msg, Message, Event        string
	Mode                       string
	Process, Worker, Pod, Host string
	Error                      any
	Time, TS, Timestamp        logTime
	Acquired, Released, Lost   logTime
	Deadline                   logTime
}

func (l *logLine) add(h *History) error {
	name, who := cmp.Or(l.Name, l.Lock), cmp.Or(l.Process, l.Worker, l.Pod, l.Host, "somebody")
	if name == "" || l.Token == 0 {
		return nil
	}
	e := Event{Worker: who, Name: name, Token: int64(l.Token), Shared: l.Mode == "shared", ID: fmt.Sprintf("%s/%d/%s", name, l.Token, who)}
	put := func(kind string, at logTime) {
		e := e
		if e.Kind, e.At = kind, time.Duration(at); kind == Lost {
			e.Until = time.Duration(l.Deadline)
		}
		h.Events = append(h.Events, e)
	}
	end := func(kind string, at logTime) {
		put(Alive, cmp.Or(min(at, cmp.Or(l.Deadline, at)), at))
		if kind == Lost {
			put(Lost, at)
		}
		put(End, at)
	}
	if l.Acquired != 0 {
		put(Grant, l.Acquired)
		switch {
		case l.Lost != 0:
			end(Lost, l.Lost)
		case l.Released != 0:
			end(End, l.Released)
		}
		return nil
	}
	at := cmp.Or(l.Time, l.TS, l.Timestamp)
	what := strings.TrimPrefix(cmp.Or(l.Msg, l.Message, l.Event), "lock ")
	if what == "acquire" && l.Error == nil {
		what = "acquired"
	}
	kinds := map[string]string{"acquired": Grant, "lost": Lost, "released": End, "write accepted": Write, "write refused": Write}
	kind, about := kinds[what]
	switch {
	case !about:
	case at == 0:
		return fmt.Errorf("%q of %q has no time", what, name)
	case kind == Write:
		e.Refused = what == "write refused"
		put(Write, at)
	case kind == Grant:
		put(Grant, at)
	default:
		end(kind, at)
	}
	return nil
}

// logToken is a number, also as text.
type logToken int64

// UnmarshalJSON implements [json.Unmarshaler]. What is no number is 0.
func (t *logToken) UnmarshalJSON(b []byte) error {
	n, _ := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	*t = logToken(n)
	return nil
}

// logTime is nanoseconds since 1970; 0 is no time.
type logTime int64

// UnmarshalJSON implements [json.Unmarshaler]. What is no time is 0.
func (t *logTime) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		*t = logTime(at.UnixNano())
		return nil
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	*t = logTime(n)
	return nil
}
