// Package explore visits every state that a model can reach, breadth first, so that the first broken
// rule has a shortest trace. Models drive the code that ships: what it decides between two requests
// is one step. docs/specification.md numbers the rules.
package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A State of a model is a pointer: a step changes it.
type State[S any] interface {
	Copy() S         // which a step may change
	Faults() *Faults // that may still happen
	Look()           // after each step: judges what depends on the past, and drops what has no effect any more
	Key(k *Key)      // adds to k; equal keys mean equal futures
	Check() string   // the rule that the state breaks, or ""
	Show() string    // in a line of a timeline
}

// A Model has the rules of a system.
type Model[S State[S]] struct {
	Init  S
	Steps []Step[S]
	Limit int // stop at so many states; 0 means none
}

// A Step can happen to each of several things: to clients, to requests on their way, or once.
type Step[S any] struct {
	Name  string                // "client # crashes": # is the number of the thing
	Of    func(s S) int         // how many things there are; nil means one
	Fault Fault                 // the step is a fault of this kind
	While func(s S) bool        // while this holds; nil means always
	If    func(s S, i int) bool // whether it can happen to the thing i; nil means always
	Then  func(s S, i int)      // changes s
	Sends bool                  // a client may send a request
	First bool                  // while it can happen, only such steps can
}

// An Action is a step that happened to a thing. It is small, since each state stores one.
type Action struct{ Step, Of uint8 }

// next appends the actions that can follow s, always in the same order.
func (m Model[S]) next(s S, all []Action) []Action {
	for k := range m.Steps {
		step := &m.Steps[k]
		if len(all) > 0 && m.Steps[all[0].Step].First && !step.First {
			return all
		}
		if step.isFault(s) && s.Faults()[step.Fault] == 0 {
			continue
		}
		things := 1
		if step.Of != nil {
			things = step.Of(s)
		}
		for i := range things {
			if step.If == nil || step.If(s, i) {
				all = append(all, Action{uint8(k), uint8(i)})
			}
		}
	}
	return all
}

func (step *Step[S]) isFault(s S) bool {
	return step.Fault != None && (step.While == nil || step.While(s))
}

// do changes s by an action.
func (m Model[S]) do(s S, a Action) {
	step := &m.Steps[a.Step]
	if step.isFault(s) {
		s.Faults()[step.Fault]--
	}
	step.Then(s, int(a.Of))
	s.Look()
}

// after returns a copy of s that an action has changed.
func (m Model[S]) after(s S, a Action) S {
	s = s.Copy()
	m.do(s, a)
	return s
}

// A Result is what was explored, in all states or in random walks.
type Result struct {
	States, Walks, Steps int
	Complete             bool     // every state was visited, or all steps taken
	Broken               string   // the rule that a state breaks, or ""
	Trace                []Action // to that state
	Seed                 uint64   // of the walk to that state
	Took                 time.Duration
}

func (r Result) String() string {
	visited, end := fmt.Sprintf("%d states", r.States), "exhausted"
	if r.Walks > 0 {
		visited, end = fmt.Sprintf("%d walks", r.Walks), "no rule broken"
	}
	switch {
	case r.Broken != "":
		end = fmt.Sprintf("BROKEN after %d steps: %s", len(r.Trace), r.Broken)
	case !r.Complete:
		end = "stopped"
	}
	return fmt.Sprintf("%s, %d steps, %v: %s", visited, r.Steps, r.Took.Round(10*time.Millisecond), end)
}

// A node is a state, and its place in the tree of a search.
type node[S any] struct {
	s  S
	id uint32
}

// origin is how a state was reached first.
type origin struct {
	parent uint32
	action Action
}

// search is what the workers of a run share.
type search[S State[S]] struct {
	m     Model[S]
	level []node[S]
	taken atomic.Int64 // states of the level
	steps atomic.Int64

	mu   sync.Mutex // guards the fields below
	seen map[hash]struct{}
	tree []origin
	next []node[S]
	why  string
	at   uint32 // the state that breaks a rule
}

// Run explores a model with so many workers, until every state was visited, a rule is broken, or the
// limit is reached. The trace is as short as any.
func Run[S State[S]](m Model[S], workers int) (r Result) {
	began := time.Now()
	x := &search[S]{m: m, seen: map[hash]struct{}{}}
	x.visit(m.Init, keyOf(m.Init, nil), origin{})
	for len(x.next) > 0 && x.why == "" && (m.Limit == 0 || len(x.tree) < m.Limit) {
		x.level, x.next = x.next, nil
		x.taken.Store(0)
		var all sync.WaitGroup
		for range workers {
			all.Go(x.work) // ends with the level
		}
		all.Wait()
	}
	r.States, r.Steps, r.Took = len(x.tree), int(x.steps.Load()), time.Since(began)
	r.Broken, r.Complete = x.why, x.why == "" && len(x.next) == 0
	for id := x.at; id != 0; id = x.tree[id].parent {
		r.Trace = append(r.Trace, x.tree[id].action)
	}
	slices.Reverse(r.Trace)
	return r
}

// work takes states of a level until none is left.
func (x *search[S]) work() {
	var key []byte
	var actions []Action
	for i := x.taken.Add(1) - 1; int(i) < len(x.level); i = x.taken.Add(1) - 1 {
		n := x.level[i]
		x.level[i].s = *new(S) // it is not needed any more
		actions = x.m.next(n.s, actions[:0])
		x.steps.Add(int64(len(actions)))
		for _, a := range actions {
			s := x.m.after(n.s, a)
			key = keyOf(s, key[:0])
			x.visit(s, key, origin{n.id, a})
		}
	}
}

// visit checks a state that was not seen before.
func (x *search[S]) visit(s S, key []byte, from origin) {
	id, added := x.add(s, hashOf(key), from)
	if !added {
		return
	}
	if why := s.Check(); why != "" {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.why, x.at = why, id
	}
}

func (x *search[S]) add(s S, h hash, from origin) (id uint32, added bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, seen := x.seen[h]; seen {
		return 0, false
	}
	id = uint32(len(x.tree))
	x.seen[h], x.tree, x.next = struct{}{}, append(x.tree, from), append(x.next, node[S]{s, id})
	return id, true
}

// Timeline returns a trace line by line.
func (m Model[S]) Timeline(trace []Action) string {
	var lines strings.Builder
	s := m.Init.Copy()
	for i, a := range trace {
		m.do(s, a)
		name := strings.Replace(m.Steps[a.Step].Name, "#", strconv.Itoa(int(a.Of)+1), 1)
		fmt.Fprintf(&lines, "%3d  %-46s %s\n", i+1, name, s.Show())
	}
	return lines.String()
}
