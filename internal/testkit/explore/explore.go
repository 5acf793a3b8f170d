// Package explore visits every state that a model can reach, breadth first, so that the first broken
// rule has a shortest trace. Models drive the code that ships: what it decides between two requests
// is one step. docs/specification.md numbers the rules.
package explore

import (
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Model has the rules of a system. S is a pointer: a step changes the state.
type Model[S any] struct {
	Init  S
	Copy  func(s S) S // which a step may change
	Steps []Step[S]
	Left  func(s S) *Faults // that may still happen; nil for a model without faults
	Look  func(s S)         // after each step: judges what depends on the past, and drops what has no effect any more; may be nil
	Key   func(s S, k *Key) // equal keys mean equal futures
	Check func(s S) string  // the rule that s breaks, or ""
	Show  func(s S) string  // s in a line of a timeline
	Limit int               // stop at so many states; 0 means none
}

// A Step can happen to each of several things: to clients, to requests on their way, or once.
type Step[S any] struct {
	Name  string                // "client # crashes": # is the number of the thing
	Of    func(s S) int         // how many things there are; nil means one
	Fault Fault                 // the step is a fault of this kind
	If    func(s S, i int) bool // whether it can happen to the thing i; nil means always
	Then  func(s S, i int)      // changes s
	Sends bool                  // a client may send a request
	First bool                  // while it can happen, only such steps can
}

// An Action is a step that happened to a thing. It is small, since each state stores one.
type Action struct{ Step, Of uint8 }

// next appends the actions that can follow s, always in the same order.
func (m Model[S]) next(s S, all []Action) []Action {
	for k, step := range m.Steps {
		if len(all) > 0 && m.Steps[all[0].Step].First && !step.First {
			return all
		}
		if step.Fault != None && m.Left(s)[step.Fault] == 0 {
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

// do changes s by an action.
func (m Model[S]) do(s S, a Action) {
	step := &m.Steps[a.Step]
	if step.Fault != None {
		m.Left(s)[step.Fault]--
	}
	step.Then(s, int(a.Of))
	if m.Look != nil {
		m.Look(s)
	}
}

// after returns a copy of s that an action has changed.
func (m Model[S]) after(s S, a Action) S {
	s = m.Copy(s)
	m.do(s, a)
	return s
}

// A Result is what was explored.
type Result struct {
	States, Steps, Depth int
	Complete             bool     // every state was visited
	Broken               string   // the rule that a state breaks, or ""
	Trace                []Action // to that state
	Took                 time.Duration
}

func (r Result) String() string {
	end := "exhausted"
	switch {
	case r.Broken != "":
		end = fmt.Sprintf("BROKEN after %d steps: %s", len(r.Trace), r.Broken)
	case !r.Complete:
		end = "stopped"
	}
	return fmt.Sprintf("%d states, %d steps, depth %d, %v: %s", r.States, r.Steps, r.Depth, r.Took.Round(10*time.Millisecond), end)
}

type node[S any] struct {
	s  S
	id uint32
}

type origin struct {
	parent uint32
	action Action
}

// seen is a set of keys. Of each it has two hashes: among 10 million keys, the probability that any
// two are taken for one is below 10^-24.
type seen struct {
	seeds  [2]maphash.Seed
	shards [64]struct {
		sync.Mutex
		keys map[[2]uint64]struct{}
	}
}

func newSeen() *seen {
	s := &seen{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	for i := range s.shards {
		s.shards[i].keys = map[[2]uint64]struct{}{}
	}
	return s
}

func (s *seen) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key)}
}

// add adds a key, and reports whether it is new.
func (s *seen) add(key []byte) bool {
	h := s.hash(key)
	shard := &s.shards[h[0]%uint64(len(s.shards))]
	shard.Lock()
	defer shard.Unlock()
	if _, ok := shard.keys[h]; ok {
		return false
	}
	shard.keys[h] = struct{}{}
	return true
}

// search is what the workers of a run share.
type search[S any] struct {
	m    Model[S]
	seen *seen

	mu    sync.Mutex // guards the fields below
	tree  []origin
	next  []node[S]
	why   string
	at    uint32 // the state that breaks a rule
	steps atomic.Int64
}

// Run explores a model with so many workers, until every state was visited, a rule is broken, or the
// limit is reached. The trace is as short as any.
func Run[S any](m Model[S], workers int) (r Result) {
	began := time.Now()
	x := &search[S]{m: m, seen: newSeen(), tree: []origin{{}}}
	x.seen.add(m.key(m.Init, nil))
	x.why = m.Check(m.Init)
	level := []node[S]{{m.Init, 0}}
	for len(level) > 0 && x.why == "" && (m.Limit == 0 || len(x.tree) < m.Limit) {
		r.Depth++
		var at atomic.Int64
		var all sync.WaitGroup
		for range workers {
			all.Go(func() { x.work(level, &at) }) // ends with the level
		}
		all.Wait()
		level, x.next = x.next, nil
	}
	r.States, r.Steps, r.Took = len(x.tree), int(x.steps.Load()), time.Since(began)
	r.Broken, r.Complete = x.why, x.why == "" && len(level) == 0
	for id := x.at; id != 0; id = x.tree[id].parent {
		r.Trace = append(r.Trace, x.tree[id].action)
	}
	slices.Reverse(r.Trace)
	return r
}

// work takes states of a level until none is left.
func (x *search[S]) work(level []node[S], at *atomic.Int64) {
	var key []byte
	var actions []Action
	var news []node[S]
	var origins []origin
	flush := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		for i := range news {
			news[i].id = uint32(len(x.tree) + i)
		}
		x.tree, x.next = append(x.tree, origins...), append(x.next, news...)
		news, origins = news[:0], origins[:0]
	}
	defer flush()
	for {
		i := int(at.Add(1)) - 1
		if i >= len(level) {
			return
		}
		n := level[i]
		level[i].s = *new(S) // it is not needed any more
		actions = x.m.next(n.s, actions[:0])
		x.steps.Add(int64(len(actions)))
		for _, a := range actions {
			s := x.m.after(n.s, a)
			if key = x.m.key(s, key[:0]); !x.seen.add(key) {
				continue
			}
			news, origins = append(news, node[S]{s: s}), append(origins, origin{n.id, a})
			if why := x.m.Check(s); why != "" {
				flush()
				x.broken(why, origin{n.id, a})
			}
		}
		if len(news) > 256 {
			flush()
		}
	}
}

// broken keeps the first state that breaks a rule.
func (x *search[S]) broken(why string, o origin) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k := len(x.tree) - 1; k >= 0 && x.why == ""; k-- {
		if x.tree[k] == o {
			x.why, x.at = why, uint32(k)
		}
	}
}

// Print writes a trace as a timeline, one step on each line.
func Print[S any](w io.Writer, m Model[S], trace []Action) {
	s := m.Copy(m.Init)
	for i, a := range trace {
		m.do(s, a)
		name := strings.Replace(m.Steps[a.Step].Name, "#", strconv.Itoa(int(a.Of)+1), 1)
		fmt.Fprintf(w, "%3d  %-46s %s\n", i+1, name, m.Show(s))
	}
}
