package election

import "context"

// State is what a candidate does.
type State int

// The states.
const (
	Idle        State = iota // neither Run nor Terms is at work
	Campaigning              // waits for its turn, or for the engine
	Leading                  // the term stands
	Stopping                 // the term's context has ended; its work has not
)

// String returns the state in one word.
func (s State) String() string {
	return [...]string{"idle", "campaigning", "leading", "stopping"}[s]
}

// Change is a change of a candidate's state.
type Change struct {
	State State
	Term  int64 // the number of the term that began, ends or ended; 0 if none
	Cause error // why it ends: as that of Term.Context, or context.Canceled if its work just returned
}

// State returns what the candidate does now. It is for people and metrics: only
// [Candidate.Term] is exact.
func (c *Candidate) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// set notes a new state, in which term begins, ends or ended, and has it told. The
// caller holds mu.
func (c *Candidate) set(s State, term *Term) {
	if c.state == s {
		return
	}
	c.state = s
	if c.cfg.OnChange == nil {
		return
	}
	change := Change{State: s}
	if term != nil {
		change.Term = term.Token()
		if s != Leading {
			change.Cause = context.Cause(term.ctx)
		}
	}
	c.changes = append(c.changes, change)
	if !c.telling {
		c.telling = true
		go c.tell() // ends when all changes have been told
	}
}

// tell calls OnChange without the mutex: it may block, call the candidate or panic.
func (c *Candidate) tell() {
	told := false
	defer func() {
		if !told {
			go c.tell() // the hook ended the goroutine; ends as this one would
		}
	}()
	for {
		c.mu.Lock()
		if len(c.changes) == 0 {
			c.telling, told = false, true
			c.mu.Unlock()
			return
		}
		change := c.changes[0]
		c.changes = c.changes[1:]
		c.mu.Unlock()
		c.cfg.OnChange(change)
	}
}
