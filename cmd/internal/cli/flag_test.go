//go:build unix

package cli

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "1.5": 1500 * time.Millisecond, "0": 0, "-1": -time.Second, "1e3": 1000 * time.Second,
		"1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1d": day, "2d12h": 60 * time.Hour, "0d": 0,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "1dd", "-1d", "1d-1s", "1d12", "1h1d", "99999d", "1d2000000h", "1e10", "nan", "inf", "5x", "1 d"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestSignalOf(t *testing.T) {
	for text, want := range map[string]string{"15": "TERM", "9": "KILL", "sigint": "INT", "USR1": "USR1"} {
		got, err := signalOf(text)
		if name, _ := signalOf(want); err != nil || got != name {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "99", "SIG"} {
		if got, err := signalOf(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
