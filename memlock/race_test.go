package memlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// TestPausedHolder is the test that docs/recipes.md shows.
func TestPausedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		engineA, engineB := store, store.Client() // two processes
		a, b := fencelock.New(engineA, nil), fencelock.New(engineB, nil)
		var floors fence.Memory // the resource's side
		var written []string
		write := func(ctx context.Context, who string) error {
			f, err := fence.From(ctx)
			if err != nil {
				return err
			}
			if err := floors.Check(ctx, "invoice:42", f); err != nil {
				return err // stale: another holder has written since
			}
			written = append(written, who)
			return nil
		}

		err := a.Do(t.Context(), "invoice:42", func(ctx context.Context) error {
			engineA.Freeze() // as kill -STOP does, between the check and the write
			if err := b.Do(t.Context(), "invoice:42", func(ctx context.Context) error {
				return write(ctx, "b") // gets in when the lease of a has expired, 30 s later
			}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour) // costs no time in a bubble
			engineA.Thaw()
			return write(ctx, "a") // too late
		})
		if len(written) != 1 || written[0] != "b" {
			t.Errorf("written by %v", written)
		}
		if err == nil {
			t.Error("the late write was not refused")
		}
	})
}
