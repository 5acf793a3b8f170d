package election

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// before is an engine whose next list shows another leader, which has led shortly before.
type before struct {
	*memlock.Engine
	late bool // the next list does so
}

func (b *before) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	all, err := b.Engine.List(ctx, q)
	if b.late && err == nil {
		b.late = false
		all[0].Holders[0].Owner, all[0].Holders[0].Host = "another", "web1"
	}
	return all, err
}

// A leader on the host of a transfer that is elected while the transfer deposes another one is not
// deposed.
func TestTransferSparesALeaderThatBegins(t *testing.T) {
	store := &before{Engine: memlock.New(nil)}
	locks := fencelock.New(store, nil).With(fencelock.Options{TTL: time.Minute, Kind: fencelock.KindElection, Note: writeNote("", 0)})
	leader, err := locks.Acquire(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	status, err := locks.Status(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	store.late = true
	_, _, err = deposeElsewhere(t.Context(), locks, "billing", status.Holders[0].Host, "maintenance")
	if !errors.Is(err, fencelock.ErrNotHeld) {
		t.Errorf("got %v, want ErrNotHeld", err)
	}
	if err := leader.Release(); err != nil {
		t.Errorf("the leader was deposed: %v", err)
	}
}
