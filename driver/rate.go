package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// RateLimiter limits the rate of events for all its clients together. It uses the clock of the
// engine, not those of the clients. An engine needs one store and one clock for this, so one that
// is a majority of servers does not implement it.
//
// For each key the engine stores one time: how far ahead of the clock the granted events reach, if
// each event takes the interval between two events at the rate. A key without events ahead of the
// clock is deleted.
type RateLimiter interface {
	// TakeRate grants events of a key or refuses them, at once and atomically. A refusal is not an
	// error and costs the key nothing. A take with Cost 0 only reads: its answer is Ahead. If the
	// engine has lost the time of a key, or its clock was set forward, it grants up to one more
	// burst. If its clock was set back, it continues from the new time.
	//
	// The engine retries temporary errors until ctx ends. An attempt whose answer was lost may have
	// been granted: the effective rate may then be lower than allowed, but never higher.
	TakeRate(ctx context.Context, take RateTake) (RateTaken, error)

	// ReturnRate returns the RateTaken.Cost of a take whose events will not happen. It does nothing
	// if something else of the key was granted in the meantime, or if it was called before with the
	// same arguments, so the engine may retry it.
	ReturnRate(ctx context.Context, take RateTake, taken RateTaken) error

	// ResetRate deletes what was granted of a key: its next take is like the first one. An unused
	// key stays unused. The engine may retry it. If ctx ends before an answer, the reset may happen
	// later or never.
	ResetRate(ctx context.Context, key string) error
}

// MaxRateAhead is the maximum of RateTake.Most: one year. Such a number of microseconds keeps all
// its digits in the arithmetic of every engine.
const MaxRateAhead = 365 * 24 * time.Hour

// RateTake asks for events of one key. Its durations are whole microseconds.
type RateTake struct {
	Key  string        // UTF-8, 1 to 512 bytes, no NUL; independent of the names of locks
	Cost time.Duration // the number of events times the interval between two; 0 only reads
	Most time.Duration // refuse if the key would be further ahead of the clock than this

	// Each is what one event takes. If it is set, the engine may grant fewer events than asked for,
	// but at least one. Cost must be a multiple of it. 0 means all or none.
	Each time.Duration
}

// Least returns the minimum that a grant must cover: Each, or Cost if Each is 0.
func (t RateTake) Least() time.Duration { return cmp.Or(t.Each, t.Cost) }

// Check returns an ErrInvalid that says what is wrong with the take, or nil. Engines call it before
// any I/O.
func (t RateTake) Check() error {
	if err := CheckName(t.Key); err != nil {
		return err
	}
	switch {
	case t.Cost < 0 || t.Cost%time.Microsecond != 0 || t.Most < time.Microsecond || t.Most%time.Microsecond != 0:
		return fmt.Errorf("%w: the cost %v and the maximum %v must be whole, positive microseconds", ErrInvalid, t.Cost, t.Most)
	case t.Each < 0 || t.Each%time.Microsecond != 0 || t.Each > 0 && (t.Cost == 0 || t.Cost%t.Each != 0):
		return fmt.Errorf("%w: the cost %v is not a whole number of events of %v each", ErrInvalid, t.Cost, t.Each)
	case t.Cost > t.Most:
		return fmt.Errorf("%w: the cost %v is more than the maximum %v, so it could never be granted", ErrInvalid, t.Cost, t.Most)
	case t.Most > MaxRateAhead:
		return fmt.Errorf("%w: the maximum %v is more than a year", ErrInvalid, t.Most)
	}
	return nil
}

// RateTaken is the answer to a RateTake.
type RateTaken struct {
	OK    bool          // whether anything was granted
	Cost  time.Duration // the cost of what was granted; 0 for a refusal
	Ahead time.Duration // how far the granted events, with these, are ahead of Now
	Now   time.Time     // the engine's clock, in whole microseconds
}
