package redisfmt_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisfmt"
)

func TestWords(t *testing.T) {
	w := redisfmt.Words{Rest: "held 42 1500 free text"}
	if a, b, c := w.Next(), w.Int(), w.Millis(); a != "held" || b != 42 || c != 1500*time.Millisecond || w.Rest != "free text" || w.Bad {
		t.Errorf("read %q %d %v, left %q, bad %t", a, b, c, w.Rest, w.Bad)
	}
}

func TestMalformedWords(t *testing.T) {
	for what, read := range map[string]func(*redisfmt.Words){
		"":        func(w *redisfmt.Words) { w.Next() },
		"a":       func(w *redisfmt.Words) { w.Next(); w.Next() },
		"a  b":    func(w *redisfmt.Words) { w.Next(); w.Next() },
		"x 1":     func(w *redisfmt.Words) { w.Int() },
		"1.5":     func(w *redisfmt.Words) { w.Int() },
		"no ms":   func(w *redisfmt.Words) { w.Millis() },
		"x 1 2 3": func(w *redisfmt.Words) { w.Int(); w.Int() }, // once bad, always bad
	} {
		w := redisfmt.Words{Rest: what}
		if read(&w); !w.Bad {
			t.Errorf("%q was read", what)
		}
	}
}

func TestLiteral(t *testing.T) {
	if got, want := redisfmt.Literal(`a\*?[b]`), `a\\\*\?\[b\]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
