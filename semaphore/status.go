package semaphore

import (
	"cmp"
	"context"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// Status describes a semaphore.
type Status struct {
	// Size is the size in force. While the engine lists nobody, it is the one given
	// to New: engines do not tell of a Resize then, though it stands.
	Size int

	// Taken is the weight of all permits. It is more than Size after the size was
	// lowered, until enough permits are back.
	Taken int

	Holders []fencelock.Holder // the permits that stand, oldest first
	Waiters []fencelock.Waiter // next first
}

// Free returns how much of the size is not taken. It may be promised to a heavy
// request that waits for more.
func (s Status) Free() int { return max(0, s.Size-s.Taken) }

// Status tells who holds permits and who waits, as far as the engine lists them. It
// is a look, not a promise: only an acquire decides. Somebody who holds the name exclusively takes all of it.
// fencelock.ErrUnsupported if the engine cannot list.
func (s *Semaphore) Status(ctx context.Context) (Status, error) {
	name, err := s.locks.Status(ctx, s.name)
	if err != nil {
		return Status{}, err
	}
	st := Status{Size: cmp.Or(name.Limit, s.size), Holders: name.Holders, Waiters: name.Waiters}
	for _, h := range name.Holders {
		st.Taken += h.Weight
	}
	if name.Mode == driver.Exclusive && len(name.Holders) > 0 {
		st.Taken = st.Size
	}
	return st, nil
}
