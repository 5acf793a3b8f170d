package gcra

// sweepFrom is the smallest number of keys at which Table removes idle ones.
const sweepFrom = 1024

// Table stores the states of many keys; the zero Table is empty. It removes idle keys from time to
// time. It never stores more than sweepFrom keys, or twice as many as were in use at one time if
// that is more. It is not safe for concurrent use.
type Table struct {
	states map[string]State
	sweep  int // the number of keys at which idle ones are removed
}

// Take is [State.Take] for a key.
func (t *Table) Take(key string, now, cost, most, each int64) (got, ahead int64) {
	s, known := t.states[key]
	got, ahead = s.Take(now, cost, most, each)
	if known || got > 0 {
		t.put(key, s, now)
	}
	return got, ahead
}

// Reset removes a key.
func (t *Table) Reset(key string) { delete(t.states, key) }

// Return is [State.Return] for a key.
func (t *Table) Return(key string, cost int64, left State) {
	if s, known := t.states[key]; known {
		s.Return(cost, left)
		t.states[key] = s
	}
}

// Len returns the number of stored keys.
func (t *Table) Len() int { return len(t.states) }

func (t *Table) put(key string, s State, now int64) {
	if t.states == nil {
		t.states, t.sweep = map[string]State{}, sweepFrom
	}
	t.states[key] = s
	if len(t.states) < t.sweep {
		return
	}
	for k, s := range t.states {
		if s.At(now) == 0 {
			delete(t.states, k)
		}
	}
	t.sweep = max(sweepFrom, 2*len(t.states))
}
