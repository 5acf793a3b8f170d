// Package gcra implements the generic cell rate algorithm, in whole microseconds.
//
// Each event costs the time between two events at the rate. The state of a key is how far the
// events that were granted are ahead of the clock. An event is granted if its cost keeps that
// within a bound, the cost of a burst. So in any time t, at most the burst plus rate × t events are
// granted.
package gcra

// State is what is known of a key; the zero State is a key that nobody has used. Its
// methods are not safe for concurrent use.
type State struct {
	Last  int64 // when Ahead was true, by the clock that counts
	Ahead int64 // how far ahead of the clock the granted events were
}

// At returns how far ahead the granted events are at a time. A clock that was set back
// has not run since.
func (s State) At(now int64) int64 {
	if now <= s.Last {
		return s.Ahead
	}
	if idle := uint64(now) - uint64(s.Last); idle < uint64(s.Ahead) {
		return s.Ahead - int64(idle)
	}
	return 0
}

// Take grants as much of a cost as keeps the granted events ahead by no more than most,
// in multiples of each: all or nothing if each is the cost. It returns what it has granted,
// and how far ahead the granted events are with that. A cost of 0 changes nothing.
func (s *State) Take(now, cost, most, each int64) (got, ahead int64) {
	ahead = s.At(now)
	if cost == 0 {
		return 0, ahead
	}
	if ahead < most {
		got = min(cost, (most-ahead)/each*each)
		ahead += got
	}
	if got > 0 || now < s.Last { // a clock that was set back counts from here
		*s = State{now, ahead}
	}
	return got, ahead
}

// Return undoes a Take of a cost that left a state behind. It does nothing if somebody has
// taken since: whoever did was told a time that rests on it. Nor does it if it comes a
// second time: where the granted events end says too little, since somebody may have taken
// the same again.
func (s *State) Return(cost int64, left State) {
	if *s == left {
		s.Ahead = max(0, s.Ahead-cost)
	}
}
