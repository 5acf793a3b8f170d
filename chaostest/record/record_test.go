package record_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/chaostest/record"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

func ExampleTracer() {
	w, err := history.FromEnv() // nil, unless a test has started this program
	if err != nil {
		log.Fatal(err)
	}
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: record.Tracer(w)})
	err = locks.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		began := history.Now()
		fmt.Println("write to a guarded resource")
		return record.Wrote(ctx, w, began, 0)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: write to a guarded resource
}

// A program is one process that records what it does.
type program struct {
	dir    string
	writer *history.Writer
	engine *memlock.Engine
	locks  *fencelock.Locker
}

func start(t *testing.T) *program {
	t.Helper()
	p := &program{dir: t.TempDir(), engine: memlock.New(nil)}
	var err error
	if p.writer, err = history.Create(p.dir, "w"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.writer.Close() })
	p.locks = fencelock.New(p.engine, &fencelock.Config{Tracer: record.Tracer(p.writer)})
	return p
}

func (p *program) history(t *testing.T) *history.History {
	t.Helper()
	h, err := history.Read(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.Judge(history.Rules{})
	for _, v := range h.Violations {
		t.Error(v)
	}
	return h
}

func TestRecordsAcquisitions(t *testing.T) {
	p := start(t)
	ctx := t.Context()
	err := p.locks.Do(ctx, "n", func(ctx context.Context) error {
		if err := p.locks.TryDo(t.Context(), "n", func(context.Context) error { return nil }); !errors.Is(err, fencelock.ErrHeld) {
			t.Error(err)
		}
		return record.Wrote(ctx, p.writer, history.Now(), 7)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.locks.With(fencelock.Options{Shared: true}).Do(ctx, "n", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h := p.history(t)
	if len(h.Acquisitions) != 2 || len(h.Waits) != 3 || len(h.Writes) != 1 {
		t.Fatalf("%+v", h)
	}
	for i, a := range h.Acquisitions {
		if a.Name != "n" || a.Worker != "w" || a.Token == 0 || a.Shared != (i == 1) || a.Lost != 0 {
			t.Errorf("%+v", a)
		}
		if a.Called > a.Returned || a.Returned > a.Until || a.Until == 0 || a.Ended < a.Until {
			t.Errorf("called %v, returned %v, until %v, ended %v", a.Called, a.Returned, a.Until, a.Ended)
		}
	}
	if w := h.Waits[1]; !w.Try || !w.Held || w.Granted || h.Waits[0].Try || !h.Waits[0].Granted {
		t.Errorf("%+v", h.Waits)
	}
	if w := h.Writes[0]; w.Token != h.Acquisitions[0].Token || w.Value != 7 || w.Refused || w.From > w.At {
		t.Errorf("%+v", w)
	}
}

// TestRecordsLosses: a loss, and the write that a guard refuses after it.
func TestRecordsLosses(t *testing.T) {
	p := start(t)
	err := p.locks.Do(t.Context(), "n", func(ctx context.Context) error {
		p.engine.Lose("n")
		<-ctx.Done()
		next, err := p.locks.Acquire(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		defer next.Release()
		token, err := fence.From(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := token.Refuse(ctx, "resource", token.Token+1); !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		return ctx.Err()
	})
	if !errors.Is(err, fencelock.ErrLost) {
		t.Fatal(err)
	}
	for { // the tracer is called a little later
		h, err := history.Read(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Acquisitions) == 2 && h.Acquisitions[0].Ended != 0 && h.Acquisitions[1].Ended != 0 {
			break
		}
	}
	h := p.history(t)
	if a := h.Acquisitions[0]; a.Lost == 0 || a.Cause == "" || a.Deadline <= a.Lost || a.Until != a.Lost {
		t.Errorf("%+v", a)
	}
	if w := h.Writes[0]; !w.Refused || w.Token != h.Acquisitions[0].Token || w.Name != "n" {
		t.Errorf("%+v", w)
	}
}

// TestFails: an attempt that fails for another reason than a holder.
func TestFails(t *testing.T) {
	p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.locks.Acquire(ctx, "n"); err == nil {
		t.Fatal("no error")
	}
	if h := p.history(t); len(h.Waits) > 0 && (h.Waits[0].Held || h.Waits[0].Granted || h.Waits[0].Text == "") {
		t.Errorf("%+v", h.Waits)
	}
}

func TestNothingToRecord(t *testing.T) {
	if record.Tracer(nil) != nil {
		t.Error("a tracer without a history")
	}
}
