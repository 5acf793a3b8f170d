package faults_test

import (
	"testing"
	"time"
)

// TestTwice: the server gets a request a second time, later, even if its client has
// gone by then, and gets what does not match once.
func TestTwice(t *testing.T) {
	t.Parallel()
	r, p := start(t)
	const by = 100 * time.Millisecond
	remove := p.Twice("INCR doubled", by)
	c := dial(t, p)
	sent := time.Now()
	c.ask("INCR doubled", ":1")
	c.ask("INCR single", ":1")
	c.Close()
	for r.Do(t, "GET", "doubled") != "2" {
		if time.Since(sent) > time.Minute {
			t.Fatal("the second delivery never came")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(sent); took < by {
		t.Errorf("the second delivery came after %v, want %v", took, by)
	}
	remove()
	c = dial(t, p)
	c.ask("INCR doubled", ":3")
	time.Sleep(2 * by)
	if got := r.Do(t, "GET", "doubled"); got != "3" {
		t.Errorf("after remove the server has counted to %s, want 3", got)
	}
	if got := r.Do(t, "GET", "single"); got != "1" {
		t.Errorf("a request that does not match was delivered %s times", got)
	}
}
