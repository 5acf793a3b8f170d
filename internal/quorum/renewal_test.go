package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/quorum"
)

// heard is a node's answer to a renewal.
type heard struct {
	node int
	s    quorum.Standing
}

func TestRenewal(t *testing.T) {
	const ok, free, taken, silent = quorum.Renewed, quorum.Free, quorum.Taken, quorum.Silent
	for name, c := range map[string]struct {
		answers []heard
		repair  string
		result  quorum.Result
	}{
		"a majority":              {answers: []heard{{0, ok}, {1, ok}, {2, ok}}, repair: "[]", result: quorum.Kept},
		"a minority":              {answers: []heard{{0, ok}, {1, ok}}, repair: "[]", result: quorum.Open},
		"one restarted":           {answers: []heard{{0, ok}, {1, free}, {2, ok}, {3, ok}}, repair: "[1]", result: quorum.Kept},
		"it answers later":        {answers: []heard{{0, ok}, {2, ok}, {3, ok}, {1, free}}, repair: "[1]", result: quorum.Kept},
		"it was given up before":  {answers: []heard{{1, silent}, {0, ok}, {2, ok}, {3, ok}, {1, free}}, repair: "[1]", result: quorum.Kept},
		"somebody else is there":  {answers: []heard{{0, ok}, {1, taken}, {2, ok}, {3, ok}}, repair: "[]", result: quorum.Kept},
		"gone":                    {answers: []heard{{0, free}, {1, taken}, {2, free}}, repair: "[]", result: quorum.Gone},
		"silence":                 {answers: []heard{{0, silent}, {1, silent}, {2, silent}, {3, ok}}, repair: "[]", result: quorum.Failed},
		"silence, and it is gone": {answers: []heard{{0, silent}, {1, free}, {2, free}, {3, silent}, {4, ok}}, repair: "[]", result: quorum.Failed},
		"gone, but for a silence": {answers: []heard{{0, free}, {1, silent}, {2, free}, {3, silent}, {4, taken}}, repair: "[]", result: quorum.Gone},
		"silence that ended":      {answers: []heard{{0, silent}, {1, silent}, {0, ok}, {2, ok}, {3, ok}}, repair: "[]", result: quorum.Kept},
		"an answer twice":         {answers: []heard{{0, ok}, {0, ok}, {0, ok}}, repair: "[]", result: quorum.Open},
	} {
		t.Run(name, func(t *testing.T) {
			r := quorum.NewRenewal(terms, at(0))
			repair := []int{}
			for _, a := range c.answers {
				repair = append(repair, r.Heard(a.node, a.s, 0, at(1))...)
			}
			if got := fmt.Sprint(repair); got != c.repair || r.Result() != c.result {
				t.Errorf("repair of %s with result %d, want %s with %d", got, r.Result(), c.repair, c.result)
			}
		})
	}
}

// TestRenewalTooLate: a repair is not sent once the lease is over, and a renewal
// that is answered after the end of the lease that it extends has failed.
func TestRenewalTooLate(t *testing.T) {
	end := terms.TTL - terms.Drift
	r := quorum.NewRenewal(terms, at(0))
	for i := range 3 {
		r.Heard(i, quorum.Renewed, 0, at(1))
	}
	if repair := r.Heard(3, quorum.Free, 0, at(end)); len(repair) > 0 {
		t.Errorf("a repair of %v after the lease", repair)
	}
	for now, want := range map[time.Duration]quorum.Result{end - 1: quorum.Kept, end: quorum.Failed} {
		r := quorum.NewRenewal(terms, at(end/2))
		r.Extends(at(0))
		for i := range 3 {
			r.Heard(i, quorum.Renewed, 0, at(now))
		}
		if r.Result() != want || r.Sent() != at(end/2) {
			t.Errorf("heard after %v: result %d, want %d", now, r.Result(), want)
		}
	}
}
