package cron

import "time"

// Overlap says what happens to a tick that comes due during an earlier run. Several ticks that
// are made up for (Config.CatchUp) wait for one another in any case.
type Overlap int

// The ways to deal with an overlap.
const (
	OverlapSkip  Overlap = iota // the tick is not run, by anybody
	OverlapLast                 // the tick waits, no longer than Config.Late; by Job.Run and the adapters only the newest one of an instance does
	OverlapAllow                // both run; their locks are shared
)

// turn ends the wait of a tick once a later one waits. A nil turn ends none.
type turn struct{ over chan struct{} }

// overTurn is the turn of ticks before those that came due last.
var overTurn = func() *turn { t := &turn{make(chan struct{})}; close(t.over); return t }()

// next ends t and returns the turn of the ticks that come now.
func (t *turn) next() *turn {
	if t != nil {
		close(t.over)
	}
	return &turn{make(chan struct{})}
}

// isOver reports whether a later tick waits.
func (t *turn) isOver() bool {
	if t == nil {
		return false
	}
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// turn returns the turn in which the tick may wait; nil if nothing but Config.Late ends that.
func (j *Job) turn(tick time.Time) *turn {
	if j.turnOf == nil {
		return nil
	}
	return j.turnOf(tick)
}

// end calls cancel when the turn is over, until the function it returns is called.
func (t *turn) end(cancel func()) (stop func()) {
	if t == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() { // ends when stop is called, or the turn is over
		select {
		case <-t.over:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}
