package filelock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/filelock"
)

// watchAll returns what Watch tells of all names.
func watchAll(t *testing.T, e driver.Watcher) <-chan driver.Event {
	events := make(chan driver.Event, 100)
	go func() { // ends with the test
		_ = e.Watch(t.Context(), driver.Query{}, func(ev driver.Event) error {
			events <- ev
			return nil
		})
	}()
	return events
}

func TestWatchTellsReleaseFromLoss(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e := filelock.New(dir, nil)
	p := proc.Start(t, "files", dir)
	events := watchAll(t, filelock.New(dir, nil))
	expect := func(kind driver.EventKind, token int64) {
		t.Helper()
		ev := await(t, events, string(kind))
		if ev.Kind != kind || ev.Name != "a" || ev.Token != token {
			t.Fatalf("got %+v, want %s of token %d", ev, kind, token)
		}
	}
	l := hold(t, e, "a")
	expect(driver.EventAcquired, l.Token)
	granted := queueUp(t, t.Context(), p, "a")
	expect(driver.EventWaiting, 0)
	release(t, e, l)
	expect(driver.EventReleased, l.Token)
	g := await(t, granted, "the grant")
	expect(driver.EventAcquired, g.Token)

	ctx, cancel := context.WithCancel(t.Context())
	queueUp(t, ctx, e, "a")
	expect(driver.EventWaiting, 0)
	cancel()
	expect(driver.EventLeft, 0)
	p.Kill(t)
	expect(driver.EventLost, g.Token)
}

func TestWatchEndsWithItsCallback(t *testing.T) {
	t.Parallel()
	e, enough := filelock.New(tempDir(t), nil), errors.New("enough")
	hold(t, e, "a")
	err := e.Watch(t.Context(), driver.Query{}, func(driver.Event) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}
