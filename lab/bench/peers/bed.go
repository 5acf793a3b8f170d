package main

import (
	"fmt"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// A bed is the servers and clients of one scenario, which end with it. Fatal ends the scenario.
type bed struct{ *hosttest.Host }

// inBed runs fn on a bed of its own and returns the error that ended it, if any.
func inBed(fn func(*bed)) error {
	return hosttest.On("peers", func(h *hosttest.Host) { fn(&bed{h}) })
}

// Logf prints what the test kit says of its servers.
func (b *bed) Logf(f string, args ...any) { fmt.Printf(f+"\n", args...) }

// must ends the scenario if err is not nil.
func (b *bed) must(err error) {
	if err != nil {
		b.Fatal(err)
	}
}
