package election

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// publication is the record of what a leader has published in its term, as JSON.
type publication struct {
	Name  string `json:"name"`
	Term  int64  `json:"term"`
	Value string `json:"value"`
}

const (
	recordPrefix  = "election/" // prefix of the keys of records
	firstConflict = time.Millisecond
	lastConflict  = 100 * time.Millisecond
)

// Publish replaces the value that the leader publishes, for the rest of the term. The next term
// starts with Config.Value again. [Current] returns the new value at once; [Observe] yields it
// within 5 s. A leader may publish until its work has returned, even after Resign.
//
// Publish returns
//
//   - fencelock.ErrLost if the term is lost, even if that is detected only after the write
//   - fencelock.ErrNotHeld if the term has ended
//   - fencelock.ErrConflict if a later term has published
//   - fencelock.ErrUnavailable if the value may or may not be published; call it again
//   - fencelock.ErrUnsupported if the engine has no records
func (t *Term) Publish(ctx context.Context, value string) error {
	records, err := t.locks.Records()
	if err != nil {
		return err
	}
	for pause := retry.NewBackoff(firstConflict, lastConflict); ; {
		err := t.publish(ctx, records, value)
		if !errors.Is(err, fencelock.ErrConflict) || errors.Is(err, errLater) || !pause.Wait(ctx) {
			return err
		}
	}
}

// errLater means that a later term has published.
var errLater = fmt.Errorf("%w: a later term has published", fencelock.ErrConflict)

// publish is one attempt. It checks the term before and after the write: if the term has ended in
// the meantime, the value does not count.
func (t *Term) publish(ctx context.Context, records fencelock.Records, value string) error {
	if err := t.lock.Err(); err != nil {
		return err
	}
	name := t.lock.Name()
	there, version, err := published(ctx, records, name)
	if err != nil {
		return err
	}
	if there.Term > t.Token() {
		return errLater
	}
	text, err := json.Marshal(publication{name, t.Token(), value})
	if err != nil {
		return fmt.Errorf("%w: %w", fencelock.ErrInvalid, err)
	}
	if _, err := records.Swap(ctx, recordPrefix+name, text, version, 0); err != nil {
		return err
	}
	return t.lock.Err()
}

// published returns the last publication for name and the version of its record, or zero values if
// there is none.
func published(ctx context.Context, records fencelock.Records, name string) (publication, string, error) {
	rec, err := records.Get(ctx, recordPrefix+name)
	if err != nil || rec.Version == "" {
		return publication{}, "", err
	}
	var p publication
	if err := json.Unmarshal(rec.Value, &p); err != nil || p.Name != name {
		return publication{}, "", fmt.Errorf("%w: the record %q is not the record of an election: %w", fencelock.ErrConfig, rec.Key, cmp.Or(err, errNoName))
	}
	return p, rec.Version, nil
}

var errNoName = errors.New("it names another election")

// lastPublished is published for callers that do not know whether the engine has records.
func lastPublished(ctx context.Context, locks *fencelock.Locker, name string) (publication, error) {
	records, err := locks.Records()
	if errors.Is(err, fencelock.ErrUnsupported) || driver.CheckName(recordPrefix+name) != nil {
		return publication{}, nil
	}
	if err != nil {
		return publication{}, err
	}
	p, _, err := published(ctx, records, name)
	return p, err
}
