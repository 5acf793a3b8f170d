//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fencedLog is the command that leaders run, "fencedlog FILE": it appends a line when
// it begins, one every few milliseconds, and one when TERM ends it. Each has the
// token of its term. Without a file it does nothing.
func fencedLog() {
	if len(os.Args) < 2 {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	file, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	check(err)
	write := func(what string) { // MEMBER is the process that leads; our parent is its watchdog
		line := fmt.Sprintf("%s %s %d %s %d", what, os.Getenv("FENCELOCK_TOKEN"), os.Getpid(), os.Getenv("MEMBER"), time.Now().UnixNano())
		_, err := fmt.Fprintf(file, "%-127s\n", line) // crosses no page: a kill leaves all of it or nothing
		check(err)
	}
	write("begin")
	for beat := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-beat.C:
			write("beat")
		case <-stop:
			write("end")
			return
		}
	}
}

// entry is a line of the log.
type entry struct {
	what          string
	token         int64
	child, parent int
	at            time.Time
}

// readLog returns the lines that are complete.
func readLog(t *testing.T, file string) []entry {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var entries []entry
	for line := range strings.Lines(string(text)) {
		var e entry
		var nanos int64
		_, err := fmt.Sscanf(line, "%s %d %d %d %d", &e.what, &e.token, &e.child, &e.parent, &nanos)
		if err != nil || !strings.HasSuffix(line, "\n") {
			break
		}
		e.at = time.Unix(0, nanos)
		entries = append(entries, e)
	}
	return entries
}

// guard goes through the log as the resource that a leader writes to would: a line
// with a token below the greatest one so far is refused. It returns how many terms
// there were, how many lines were refused, and what is wrong: a term with two
// commands, or a line refused of anybody but late, a process that was frozen as a
// whole.
func guard(entries []entry, late int) (terms, refused int, wrong []string) {
	greatest, child := int64(0), 0
	for i, e := range entries {
		switch {
		case e.token > greatest:
			greatest, child = e.token, e.child
			terms++
			if e.what != "begin" {
				wrong = append(wrong, fmt.Sprintf("line %d: term %d begins with %q", i+1, e.token, e.what))
			}
		case e.token < greatest:
			refused++
			if e.child != late {
				wrong = append(wrong, fmt.Sprintf("line %d: two leaders: process %d writes with %d after %d", i+1, e.child, e.token, greatest))
			}
		case e.child != child:
			wrong = append(wrong, fmt.Sprintf("line %d: two commands in term %d: %d and %d", i+1, e.token, child, e.child))
		}
	}
	return terms, refused, wrong
}

func TestGuardSeesTwoLeaders(t *testing.T) {
	first := entry{what: "begin", token: 1, child: 10}
	second := entry{what: "begin", token: 2, child: 20}
	for _, c := range []struct {
		what                  string
		log                   []entry
		late                  int
		terms, refused, wrong int
	}{
		{"one after the other", []entry{first, first, second, second}, 0, 2, 0, 0},
		{"in turns", []entry{first, second, first, second}, 0, 2, 1, 1},
		{"a late one", []entry{first, second, first}, 10, 2, 1, 0},
		{"two in one term", []entry{first, {what: "begin", token: 1, child: 11}}, 0, 1, 0, 1},
		{"without a beginning", []entry{{what: "beat", token: 3, child: 30}}, 0, 1, 0, 1},
	} {
		terms, refused, wrong := guard(c.log, c.late)
		if terms != c.terms || refused != c.refused || len(wrong) != c.wrong {
			t.Errorf("%s: %d terms, %d refused, %q", c.what, terms, refused, wrong)
		}
	}
}
