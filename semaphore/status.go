package semaphore

import (
	"cmp"
	"context"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// Status describes a semaphore.
type Status struct {
	// Size is the current size. While nobody holds or waits, it is the size given to New, because
	// engines then do not report a Resize, although it still applies.
	Size int

	// Taken is the total weight of all permits. After the size was lowered it may exceed Size until
	// enough permits are released.
	Taken int

	Holders []fencelock.Holder // the current permits, oldest first
	Waiters []fencelock.Waiter // next first
}

// Free returns how many units are not taken. They may be reserved for a heavy request that waits
// for more.
func (s Status) Free() int { return max(0, s.Size-s.Taken) }

// Status returns the holders and waiters that the engine lists. The answer may be out of date when
// it arrives. If the name is held exclusively, all units are taken. Status returns
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
