package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// awaited is a call of Await in a goroutine of its own.
type awaited struct {
	records
	key    string
	cancel context.CancelFunc
	done   chan struct{} // closed when the call has returned
	rec    driver.Record // the result; valid after done
	err    error
}

// recordAwait: Await returns a record once its version differs: at once if it does already, and
// otherwise when another client changes it, or when it expires. It blocks until then, or until its
// context ends.
//
// It fails Records that miss a change between a read and the call, or do not notice that a record
// has expired.
func recordAwait(t *run) {
	rs := recordsOf(t, 2)
	here, there := rs[0], rs[1]
	if _, ok := here.records.(driver.Awaiter); !ok {
		t.Skip("the Records are no driver.Awaiter")
	}
	first := there.put("awaited", "one", "", 0)
	here.await("awaited", "").shows("one", first, "of a record that was written before")
	w := here.await("awaited", first)
	w.pending("while the record is unchanged")
	second := there.put("awaited", "two", first, 0)
	w.shows("two", second, "of a record that another client has changed")
	here.await("awaited", first).shows("two", second, "from an old version")

	w = here.await("created", "")
	w.pending("while there is no record")
	version := there.put("created", "three", "", 0)
	w.shows("three", version, "of a record that was created")

	version = there.put("brief", "four", "", min(t.ttl, time.Second))
	here.await("brief", version).shows("", "", "of a record that has expired")

	w = here.await("awaited", second)
	w.pending("before its context ends")
	w.cancel()
	<-w.done
	if !errors.Is(w.err, context.Canceled) {
		t.Errorf("Await with a context that was cancelled: got %v, want Canceled", w.err)
	}
}

// await starts to wait for a version other than the given one.
func (r records) await(key, version string) *awaited {
	ctx, cancel := context.WithTimeout(r.ctx, r.ttl+r.patience)
	w := &awaited{records: r, key: key, cancel: cancel, done: make(chan struct{})}
	r.run.calls.Go(func() { // ends with its context
		defer close(w.done)
		for w.err == nil {
			w.rec, w.err = r.records.(driver.Awaiter).Await(ctx, key, version)
			if w.err == nil && w.rec.Version != version {
				return
			}
		}
	})
	return w
}

// pending fails the case if the call has returned.
func (w *awaited) pending(when string) {
	w.Helper()
	w.settle()
	select {
	case <-w.done:
		w.Fatalf("Await(%q) returned %q in version %q, %v %s", w.key, w.rec.Value, w.rec.Version, w.err, when)
	default:
	}
}

// shows fails the case unless the call returns this record.
func (w *awaited) shows(value, version, when string) {
	w.Helper()
	<-w.done
	w.cancel()
	if w.err != nil || string(w.rec.Value) != value || w.rec.Version != version {
		w.Errorf("Await(%q) %s returned %q in version %q, %v, want %q in version %q", w.key, when, w.rec.Value, w.rec.Version, w.err, value, version)
	}
}
