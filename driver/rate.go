package driver

import (
	"context"
	"fmt"
	"time"
)

// RateLimiter counts how often things happen, for all its clients together and by its
// own clock: the clients' clocks do not matter. An engine without one store and one clock
// that decide, such as a majority of servers, does not implement it.
//
// What it keeps of a key is one time: how far ahead of the clock the granted events are,
// if each takes the time that lies between two of them at the rate. A key that nobody has
// used for that long is forgotten, and costs nothing.
type RateLimiter interface {
	// TakeRate grants events of a key or refuses them, at once and in one step. A
	// refusal is an answer and no error, and costs the key nothing. An engine that
	// has lost a key's time, or whose clock was set forward, grants one burst more;
	// one whose clock was set back goes on from there.
	//
	// The engine retries its own passing errors until ctx ends. A try whose answer
	// was lost may have been granted: then less is granted than may be, never more.
	TakeRate(ctx context.Context, take RateTake) (RateTaken, error)

	// ReturnRate undoes a take that was granted and whose events will not happen. It
	// does nothing if anything of the key was granted since, or if it comes a second
	// time: an engine may make it again whose answer was lost.
	ReturnRate(ctx context.Context, take RateTake, taken RateTaken) error
}

// MaxRateAhead is the greatest RateTake.Most, a year: numbers of so many microseconds
// keep all their digits in every engine's arithmetic.
const MaxRateAhead = 365 * 24 * time.Hour

// RateTake asks for events of one key. Both durations are whole microseconds.
type RateTake struct {
	Key  string        // UTF-8, 1 to 512 bytes, no NUL; apart from the names of locks
	Cost time.Duration // what the events take: their number times the interval between two
	Most time.Duration // refuse what would be further ahead of the clock than this
}

// Check returns an ErrInvalid that says what is wrong with the take, or nil. Engines call
// it before any I/O.
func (t RateTake) Check() error {
	if err := CheckName(t.Key); err != nil {
		return err
	}
	switch {
	case t.Cost < time.Microsecond || t.Cost%time.Microsecond != 0 || t.Most%time.Microsecond != 0:
		return fmt.Errorf("%w: a cost of %v and at most %v ahead are not whole microseconds", ErrInvalid, t.Cost, t.Most)
	case t.Cost > t.Most:
		return fmt.Errorf("%w: a cost of %v is never within %v", ErrInvalid, t.Cost, t.Most)
	case t.Most > MaxRateAhead:
		return fmt.Errorf("%w: %v ahead is more than a year", ErrInvalid, t.Most)
	}
	return nil
}

// RateTaken is the answer to a RateTake.
type RateTaken struct {
	OK    bool          // granted
	Ahead time.Duration // how far the granted events are ahead of Now, with these if OK
	Now   time.Time     // the engine's clock, in whole microseconds
}
