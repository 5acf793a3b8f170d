// Package gcra counts rates by the generic cell rate algorithm, in whole microseconds.
//
// Each event costs the time that lies between two of them at the rate. What is
// remembered of a key is how far the events it was granted are ahead of the clock. An
// event is granted if its cost keeps that within a bound: the cost of a burst. So no
// more is granted in any time t than the burst and what the rate gives in t.
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

// Take grants events of a cost if they are ahead by no more than most then. It returns
// how far ahead the granted events are, with those of now if ok.
func (s *State) Take(now, cost, most int64) (ahead int64, ok bool) {
	ahead = s.At(now)
	ok = cost <= most && ahead <= most-cost
	if ok {
		ahead += cost
	}
	if ok || now < s.Last { // a clock that was set back counts from here
		*s = State{now, ahead}
	}
	return ahead, ok
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
