package idempotent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// The tracer of the Locker gets the outcome of each call in one word.
func TestTracerGetsOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		var got []string
		tracer := &fencelock.Tracer{OnceEnd: func(_ context.Context, d fencelock.TraceOnce) {
			got = append(got, d.Name+" "+d.Outcome)
			if ran := d.Outcome == "done" || d.Outcome == "failed" || d.Outcome == "lost"; ran != (d.Token > 0) || d.Engine != "memory" {
				t.Errorf("%+v", d)
			}
		}}
		locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: lease})
		s := idempotent.New(locks, engine.Records(), nil)
		call := func(s *idempotent.Store, key string, work func() error) {
			_, _ = idempotent.Do(t.Context(), s, key, func(context.Context) (int, error) { return 0, work() })
		}
		fine := func() error { return nil }
		call(s, "a", fine)
		call(s, "a", fine)
		call(s.With(idempotent.Options{Payload: []byte("other")}), "a", fine)
		call(s, "b", func() error {
			call(s.With(idempotent.Options{NoWait: true}), "b", fine)
			return errors.New("broken")
		})
		engine.Refuse(errors.New("down"))
		call(s.With(idempotent.Options{Wait: time.Second}), "c", fine)
		engine.Refuse(nil)
		call(s, "d", func() error {
			engine.Lose("idempotent/d")
			call(jobs(engine, idempotent.Config{}), "d", fine)
			return nil
		})
		want := []string{"idempotent/a done", "idempotent/a stored", "idempotent/a mismatch", "idempotent/b in_progress", "idempotent/b failed", "idempotent/c error", "idempotent/d lost"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
