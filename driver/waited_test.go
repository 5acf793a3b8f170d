package driver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var (
	errRefused = errors.New("connection refused")
	errClosed  = fmt.Errorf("%w: quarantine until noon", driver.ErrUnavailable)
	inWay      = &driver.HeldError{Name: "n", Owner: "o"}
	open       = context.Background()
)

// over returns a context that has run out of time.
func over(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	t.Cleanup(cancel)
	return ctx
}

// waitedFor is the error of a request that waited for a holder until ctx ended.
func waitedFor(held *driver.HeldError, ctx context.Context) error {
	var w driver.Waited
	w.Held(held)
	return w.Ended(ctx, nil)
}

// Busy and broken are told apart by the last report.
func TestWaited(t *testing.T) {
	late := over(t)
	cut := fmt.Errorf("asking: %w", late.Err())
	silent := (&driver.Waited{}).Ended(late, nil)
	refused, held := (&driver.Waited{}).Ended(late, errRefused), waitedFor(inWay, late)
	for _, c := range []struct {
		what string
		hear func(w *driver.Waited)
		err  error
		want error // besides the context's
		says string
	}{
		{"nothing", func(*driver.Waited) {}, nil, driver.ErrUnavailable, "engine is unavailable: no answer: gave up waiting: context deadline exceeded"},
		{"nothing, and its request was cut short", func(*driver.Waited) {}, cut, driver.ErrUnavailable, "no answer"},
		{"nothing, and the engine has words for it", func(*driver.Waited) {}, fmt.Errorf("%w: %w", driver.ErrUnavailable, cut), driver.ErrUnavailable, "engine is unavailable: asking: context"},
		{"what another one heard: refused", func(w *driver.Waited) { w.Held(inWay) }, refused, driver.ErrUnavailable, "engine is unavailable: connection refused: gave up waiting: context deadline"},
		{"what another one heard: nothing", func(w *driver.Waited) { w.Held(inWay) }, silent, driver.ErrHeld, "held by o"},
		{"what another one heard: held", func(w *driver.Waited) { w.Unavailable(open, errRefused) }, held, driver.ErrHeld, "held by o"},
		{"held", func(w *driver.Waited) { w.Held(inWay) }, nil, driver.ErrHeld, `"n" is held by o: gave up waiting: context deadline exceeded`},
		{"held, as the last error", func(*driver.Waited) {}, inWay, driver.ErrHeld, "held by o"},
		{"held, and the next request was cut short", func(w *driver.Waited) { w.Held(inWay); w.Unavailable(late, cut) }, cut, driver.ErrHeld, "held by o"},
		{"refused", func(w *driver.Waited) { w.Unavailable(open, errRefused) }, nil, driver.ErrUnavailable, "engine is unavailable: connection refused: gave up"},
		{"refused, as the last error", func(*driver.Waited) {}, errRefused, driver.ErrUnavailable, "connection refused"},
		{"an attempt that took too long", func(w *driver.Waited) { w.Unavailable(open, context.DeadlineExceeded) }, nil, driver.ErrUnavailable, "context deadline exceeded: gave up"},
		{"refused after held", func(w *driver.Waited) { w.Held(inWay); w.Unavailable(open, errRefused) }, nil, driver.ErrUnavailable, "refused"},
		{"held after refused", func(w *driver.Waited) { w.Unavailable(open, errRefused); w.Held(inWay) }, nil, driver.ErrHeld, "held"},
		{"quarantine", func(w *driver.Waited) { w.Unavailable(open, errClosed) }, nil, driver.ErrUnavailable, "engine is unavailable: quarantine until noon: gave up"},
		{"three lines", func(w *driver.Waited) { w.Unavailable(open, errors.New("a:\n\tb\n\tc")) }, nil, driver.ErrUnavailable, "engine is unavailable: a: b c: gave up"},
	} {
		var w driver.Waited
		c.hear(&w)
		err := w.Ended(late, c.err)
		for _, want := range []error{c.want, late.Err()} {
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", c.what, err, want)
			}
		}
		if errors.Is(err, driver.ErrHeld) && errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v is both busy and broken", c.what, err)
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %q, want %q in it", c.what, err, c.says)
		}
	}
}

// What no more time would change is not dressed up as the end of a wait, and what
// ended before the context stays as it is.
func TestWaitedKeepsErrors(t *testing.T) {
	late := over(t)
	for _, final := range []error{driver.ErrInvalid, driver.ErrUnsupported, driver.ErrConfig} {
		var w driver.Waited
		w.Held(inWay)
		if err := w.Ended(late, final); err != final {
			t.Errorf("got %v, want %v as it was", err, final)
		}
	}
	for _, err := range []error{inWay, errClosed, nil} {
		if got := (&driver.Waited{}).Ended(open, err); got != err {
			t.Errorf("before the context ended: got %v, want %v as it was", got, err)
		}
	}
}

func TestWaitedLast(t *testing.T) {
	var w driver.Waited
	if held, trouble := w.Last(); held != nil || trouble != nil {
		t.Errorf("before any answer: %v, %v", held, trouble)
	}
	w.Held(inWay)
	if held, trouble := w.Last(); held != inWay || trouble != nil {
		t.Errorf("after held: %v, %v", held, trouble)
	}
	w.Unavailable(open, errRefused)
	if held, trouble := w.Last(); held != nil || trouble != errRefused {
		t.Errorf("after refused: %v, %v", held, trouble)
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "a:\n\tb: c\n\td": "a: b: c d", "a\r\nb": "a b"} {
		err := errors.New(in)
		if got := driver.OneLine(err); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("got %q, want %q around the same", got, want)
		}
	}
	if driver.OneLine(nil) != nil {
		t.Error("no error became one")
	}
}
