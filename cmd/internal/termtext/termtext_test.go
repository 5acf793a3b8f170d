package termtext_test

import (
	"testing"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
)

func TestWordAndText(t *testing.T) {
	for in, want := range map[string]string{
		"":            `""`,
		"plain:42/é":  "plain:42/é",
		"two words":   `"two words"`,
		"\x1b[2J":     `"\x1b[2J"`,
		"a\nb":        `"a\nb"`,
		"\u202eevil":  `"\u202eevil"`,
		"\xff":        `"\xff"`,
		`"x"`:         `"\"x\""`,
		"a\u00a0b":    `"a\u00a0b"`,
		"back\\slash": `back\slash`,
	} {
		if got := termtext.Word(in); got != want {
			t.Errorf("Word(%q) = %s, want %s", in, got, want)
		}
	}
	if got := termtext.Text("two words"); got != "two words" {
		t.Errorf("got %s", got)
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\t c ":           "a b c",
		"red \x1b[31m \u202e": "red [31m",
		"é":                   "é",
	} {
		if got := termtext.Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"invoice:42": "invoice:42",
		"$(reboot)":  "'$(reboot)'",
		"it's":       `'it'"'"'s'`,
		"a b":        "'a b'",
	} {
		if got := termtext.ShellWord(in); got != want {
			t.Errorf("ShellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"file", "redis", "redis+cluster", "postgres", "mem"}
	for in, want := range map[string]string{
		"redsi": "redis?", "fiel": "file?", "rediss+cluster": "redis+cluster?", "postgers": "postgres?",
		"https": "", "m": "", "x": "", "": "",
	} {
		if got := termtext.Suggest(in, known, "%s?"); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", in, got, want)
		}
	}
}
