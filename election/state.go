package election

import "context"

// State is the state of a candidate. The zero value is none.
type State string

// The states.
const (
	Idle        State = "idle"        // neither Run nor Terms is active
	Campaigning State = "campaigning" // waiting to become the leader, or for the engine
	Leading     State = "leading"     // leading
	Stopping    State = "stopping"    // the context of the term has ended, but its work has not returned
)

// Change is a change of a candidate's state.
type Change struct {
	State State
	Term  int64 // the number of the term that began, ends or has ended; 0 if none
	Cause error // why the term ends: the cause of Term.Context, or context.Canceled if its work returned
}

// State returns the current state of the candidate, for people and metrics. Only [Candidate.Term]
// is exact.
func (c *Candidate) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// set stores a new state, in which term begins, ends or has ended, and queues the call of OnChange.
// The caller holds mu.
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
		go c.tell() // ends when all changes have been passed on
	}
}

// tell calls OnChange without holding the mutex: it may block, call the candidate or panic.
func (c *Candidate) tell() {
	ended := false
	defer func() {
		if !ended {
			go c.tell() // the hook ended this goroutine with runtime.Goexit: continue on another
		}
	}()
	for {
		c.mu.Lock()
		if len(c.changes) == 0 {
			c.telling, ended = false, true
			c.mu.Unlock()
			return
		}
		change := c.changes[0]
		c.changes = c.changes[1:]
		c.mu.Unlock()
		c.cfg.OnChange(change)
	}
}
