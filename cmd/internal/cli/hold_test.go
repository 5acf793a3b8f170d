//go:build unix

package cli

import (
	"io"
	"os"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/supervise"
	"github.com/fencelock/fencelock/filelock"
)

// TestLossBeforeTheCommandInherits: if a lock on files is lost before the command inherits its
// file, hold reports a lost lock, after which elect campaigns again. It does not report a failed
// start.
func TestLossBeforeTheCommandInherits(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	engine := filelock.New(h.path("locks"), nil)
	lock, err := fencelock.New(engine, nil).Acquire(t.Context(), "x")
	must(t, err)
	must(t, os.RemoveAll(h.path("locks")))
	a := &App{Context: t.Context(), Stderr: io.Discard}
	end := a.hold(engine, lock, supervise.Command{Lock: lock, Path: "/bin/false", Args: []string{"false"}}, func() {}, func(error) {})
	if !end.Lost || end.begun || exitCode(end.err) != exitLost {
		t.Errorf("got %+v, want a lost lock and exit code 76", end)
	}
}
