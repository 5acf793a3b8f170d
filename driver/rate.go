package driver

import (
	"cmp"
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
	// refusal is an answer and no error, and costs the key nothing. A take of no Cost
	// only looks, and writes nothing: its answer is what is Ahead. An engine that
	// has lost a key's time, or whose clock was set forward, grants one burst more;
	// one whose clock was set back goes on from there.
	//
	// The engine retries its own passing errors until ctx ends. A try whose answer
	// was lost may have been granted: then less is granted than may be, never more.
	TakeRate(ctx context.Context, take RateTake) (RateTaken, error)

	// ReturnRate gives back what a take was granted, RateTaken.Cost, if its events will
	// not happen. It does nothing if anything of the key was granted since, or if it comes a second
	// time: an engine may make it again whose answer was lost.
	ReturnRate(ctx context.Context, take RateTake, taken RateTaken) error

	// ResetRate forgets what was granted of a key: the next take of it is as the first.
	// A key that nobody has used stays as it is. The engine may make it again whose
	// answer was lost; if ctx ends before an answer, it may happen later or never.
	ResetRate(ctx context.Context, key string) error
}

// MaxRateAhead is the greatest RateTake.Most, a year: numbers of so many microseconds
// keep all their digits in every engine's arithmetic.
const MaxRateAhead = 365 * 24 * time.Hour

// RateTake asks for events of one key. The durations are whole microseconds.
type RateTake struct {
	Key  string        // UTF-8, 1 to 512 bytes, no NUL; apart from the names of locks
	Cost time.Duration // what the events take: their number times the interval between two; 0 only looks
	Most time.Duration // refuse what would be further ahead of the clock than this

	// Each is what one event takes, if fewer events than asked for may be granted: as many
	// as there are, at least one. Cost is a multiple of it. 0 means all or none.
	Each time.Duration
}

// Least returns what is granted at least, if anything is: Each, or Cost if that is 0.
func (t RateTake) Least() time.Duration { return cmp.Or(t.Each, t.Cost) }

// Check returns an ErrInvalid that says what is wrong with the take, or nil. Engines call
// it before any I/O.
func (t RateTake) Check() error {
	if err := CheckName(t.Key); err != nil {
		return err
	}
	switch {
	case t.Cost < 0 || t.Cost%time.Microsecond != 0 || t.Most < time.Microsecond || t.Most%time.Microsecond != 0:
		return fmt.Errorf("%w: a cost of %v and at most %v ahead are not whole microseconds", ErrInvalid, t.Cost, t.Most)
	case t.Each < 0 || t.Each%time.Microsecond != 0 || t.Each > 0 && (t.Cost == 0 || t.Cost%t.Each != 0):
		return fmt.Errorf("%w: a cost of %v is no number of events of %v each", ErrInvalid, t.Cost, t.Each)
	case t.Cost > t.Most:
		return fmt.Errorf("%w: a cost of %v is never within %v", ErrInvalid, t.Cost, t.Most)
	case t.Most > MaxRateAhead:
		return fmt.Errorf("%w: %v ahead is more than a year", ErrInvalid, t.Most)
	}
	return nil
}

// RateTaken is the answer to a RateTake.
type RateTaken struct {
	OK    bool          // granted, or some of it with RateTake.Each
	Cost  time.Duration // what was granted takes; 0 for a refusal
	Ahead time.Duration // how far the granted events are ahead of Now, with these
	Now   time.Time     // the engine's clock, in whole microseconds
}
