package cli

import (
	"strings"
	"testing"
)

// The patterns have a value in them that the shell computes; see TestRunTerminal.

func TestElectTerminal(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const body = `echo $(grep SigIgn /proc/$$/status | tr "\t" "=")-$((1+1)); read a; echo got-$a; exit 3`
	s.enter("fencelock elect --restart x -- sh -c '" + body + "'\n")
	first := s.expect(`SigIgn:=[0-9a-f]+-2`)
	s.enter("one\n")
	s.expect("got-one")
	s.expect("the command exited with code 3; campaigning for \"x\" again in 1s")

	// The command of the second term has the terminal too, and ignores the same signals.
	if second := s.expect(`SigIgn:=[0-9a-f]+-2`); ignored(second) != ignored(first) {
		t.Errorf("the commands ignore %q and %q", ignored(first), ignored(second))
	}
	s.enter("\x1a")
	s.expect("Stopped")
	s.enter("fg\n")
	s.expect("fencelock elect")
	s.enter("two\n")
	s.expect("got-two")

	// After an interrupt from the terminal, elect does not restart the command.
	s.expect(`SigIgn:=[0-9a-f]+-2`)
	s.enter("\x03")
	s.expect(`\$ `) // what is typed before is flushed
	s.enter("echo code-$?\n")
	s.expect("code-130")
}

// ignored returns the mask of ignored signals at the end of text.
func ignored(text string) string { return text[len(text)-len("0000000000000000-2"):] }

func TestElectTerminalStandby(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.enter("fencelock run --note 'a job' x -- sh -c 'echo up-$((1+1)); sleep 60' &\n")
	s.expect("up-2")
	s.enter("fencelock elect x -- true\n")
	s.expect(`fencelock: \d+s, waiting for "x"; at the start: position 1, held by pid \d+ on .*\(a job\)`)
	s.enter("\x03")
	s.expect(`\$ `) // what is typed before is flushed
	s.enter("echo code-$?\n")
	s.expect("code-130")
	s.enter("kill %1; wait; echo end-$((1+1))\n")
	s.expect("end-2")
}

// TestElectTerminalPause: between two terms, Ctrl-Z stops elect.
func TestElectTerminalPause(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.enter("fencelock elect --restart x -- sh -c 'exit 3'\n")
	s.expect("campaigning for \"x\" again in 2s")
	// On a slow machine the key may arrive after the next term has begun. Then the command receives
	// it and exits anyway, and the loop sends the key again in the next pause.
	for stopped := false; !stopped; {
		s.enter("\x1a")
		stopped = strings.HasSuffix(s.expect(`Stopped|again in \d`), "Stopped")
	}
	s.expect(`\$ `)
	s.enter("fg\n")
	s.expect(`again in \d`)
	s.enter("\x03")
	s.expect(`\$ `)
	s.enter("echo code-$?\n")
	s.expect("code-130")
}
