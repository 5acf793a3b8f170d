package idempotent_test

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// Records that version 0.1.0 stores. Later versions must understand them, because processes of two
// versions run side by side during an upgrade (docs/stability.md).
const (
	storedDone   = `{"state":"done","owner":"01a21800-0000-7000-8000-000000000001","token":7,"payload":"","host":"db1","pid":42,"ended":"2026-01-02T03:04:05.5Z"}` + "\n17"
	storedFailed = `{"state":"failed","owner":"01a21800-0000-7000-8000-000000000001","token":7,"host":"db1","pid":42,"ended":"2026-01-02T03:04:05.5Z","error":"the card is refused"}` + "\n"
	storedNone   = `{"state":"no result","owner":"01a21800-0000-7000-8000-000000000001","token":7,"host":"db1","pid":42,"ended":"2026-01-02T03:04:05.5Z"}` + "\n"
	storedNow    = `{"state":"running","owner":"01a21800-0000-7000-8000-000000000001","token":7,"host":"db1","pid":42}` + "\n"
)

func TestRecordsOfEarlierVersions(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s, ctx := jobs(engine, idempotent.Config{}), t.Context()
		do := func(key, stored string) (int64, error) {
			t.Helper()
			if _, err := engine.Records().Swap(ctx, "idempotent/"+key, []byte(stored), "", 0); err != nil {
				t.Fatal(err)
			}
			return idempotent.Do(ctx, s, key, func(context.Context) (int64, error) { return 18, nil })
		}
		if v, err := do("done", storedDone); v != 17 || err != nil {
			t.Errorf("done: %d, %v, want the stored result 17", v, err)
		}
		if _, err := do("failed", storedFailed); err == nil || !regexp.MustCompile("the card is refused").MatchString(err.Error()) {
			t.Errorf("failed: %v, want the stored failure", err)
		}
		if _, err := do("none", storedNone); !errors.Is(err, idempotent.ErrNoResult) {
			t.Errorf("no result: %v, want ErrNoResult", err)
		}
		if v, err := do("running", storedNow); v != 18 || err != nil {
			t.Errorf("running, without a lock: %d, %v, want a new run", v, err)
		}
	})
}

// TestStoredRecord: an earlier version can read what this one stores.
func TestStoredRecord(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		s := jobs(engine, idempotent.Config{})
		if _, err := idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { return 17, nil }); err != nil {
			t.Fatal(err)
		}
		stored, err := engine.Records().Get(t.Context(), "idempotent/a")
		want := `^\{"state":"done","owner":"[-0-9a-f]{36}","token":\d+,"host":"[^"]*","pid":\d+,"ended":"[^"]+Z"\}` + "\n17$"
		if err != nil || !regexp.MustCompile(want).Match(stored.Value) {
			t.Errorf("stored %q, %v, want %s", stored.Value, err, want)
		}
	})
}
