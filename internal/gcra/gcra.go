// Package gcra implements the generic cell rate algorithm, in whole microseconds.
//
// The cost of an event is the interval between two events at the rate. The state of a key is how
// far the granted events are ahead of the clock. An event is granted if, with its cost added, they
// are ahead by no more than the cost of a burst. So in any period t, at most the burst plus rate ×
// t events are granted.
package gcra

// State is the state of a key; the zero State is that of a key that was never used. Its methods are
// not safe for concurrent use.
type State struct {
	Last  int64 // the time at which Ahead was computed
	Ahead int64 // how far ahead of the clock the granted events were
}

// At returns how far ahead of the clock the granted events are at the time now. If now is before
// Last, because the clock was set back, no time has passed.
func (s State) At(now int64) int64 {
	if now <= s.Last {
		return s.Ahead
	}
	if idle := uint64(now) - uint64(s.Last); idle < uint64(s.Ahead) {
		return s.Ahead - int64(idle)
	}
	return 0
}

// Take grants as much of a cost as possible while the granted events stay ahead by no more than
// most. It grants a multiple of each; if each is the cost, it grants all or nothing. It returns the
// granted cost, and how far ahead the granted events are then. A cost of 0 changes nothing.
func (s *State) Take(now, cost, most, each int64) (got, ahead int64) {
	ahead = s.At(now)
	if cost == 0 {
		return 0, ahead
	}
	if ahead < most {
		got = min(cost, (most-ahead)/each*each)
		ahead += got
	}
	if got > 0 || now < s.Last { // after the clock was set back, time counts from now
		*s = State{now, ahead}
	}
	return got, ahead
}

// Return undoes a Take that granted cost and resulted in the state left. It does nothing if another
// Take has succeeded since, because the time returned to that caller depends on this one. It also
// does nothing if it is called a second time. Therefore it compares the whole state: Ahead alone
// can be the same after another Take of the same cost.
func (s *State) Return(cost int64, left State) {
	if *s == left {
		s.Ahead = max(0, s.Ahead-cost)
	}
}
