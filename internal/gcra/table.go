package gcra

// sweepFrom is how many keys are kept at least before the idle ones are looked for.
const sweepFrom = 1024

// Table is the states of many keys; the zero Table is empty. Idle keys are forgotten in
// time, and cost nothing but memory until then: there are never more than twice as many
// keys as were in use at once. It is not safe for concurrent use.
type Table struct {
	states map[string]State
	sweep  int // how many keys there are when it is swept
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

// Reset forgets a key.
func (t *Table) Reset(key string) { delete(t.states, key) }

// Return is [State.Return] for a key.
func (t *Table) Return(key string, cost int64, left State) {
	if s, known := t.states[key]; known {
		s.Return(cost, left)
		t.states[key] = s
	}
}

// Len returns how many keys are remembered.
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
