package semaphore

import "github.com/fencelock/fencelock"

// Permit is some of a semaphore: held from the moment it is returned until it is
// released or lost. It is a lock like any other: Context ends when it is lost, Err
// tells exactly whether it stands, Token and Floor fence, Release gives it back. It
// is safe for concurrent use.
type Permit struct {
	*fencelock.Lock
	weight int
}

// Weight returns how much of the size the permit takes.
func (p *Permit) Weight() int { return p.weight }
