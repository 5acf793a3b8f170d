package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
)

// TestSlow: a connection transfers no more bytes than it may, in order.
func TestSlow(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.Slow(faults.ToServer, 1000)
	began := time.Now()
	word := strings.Repeat("x", 200)
	for range 2 {
		c.send("ECHO " + word)
	}
	for range 2 {
		c.hears("$200")
		c.hears(word)
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("400 bytes at 1000 bytes per second took %v", took)
	}
	heal(t, p)
	c.ask("PING", "+PONG")
}

// TestLossy: a lost packet arrives later, and nothing overtakes it.
func TestLossy(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.Lossy(faults.Both, 1)
	began := time.Now()
	c.ask("PING", "+PONG")
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("a request and a reply that were lost once took %v", took)
	}
	p.Lossy(faults.ToServer, 0.5)
	for _, word := range []string{"one", "two", "three", "four"} {
		c.send("ECHO " + word)
	}
	for _, want := range []string{"$3", "one", "$3", "two", "$5", "three", "$4", "four"} {
		c.hears(want)
	}
	heal(t, p)
	c.ask("PING", "+PONG")
}
