package check

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// MaxOps is how many calls of one lock are searched.
const MaxOps = 500

// patience is how long a search may take.
const patience = 30 * time.Second

// Kind is what a call did.
type Kind int

// The kinds.
const (
	Acquire Kind = iota // try to get the lock
	Release             // give it back
	Write               // write Value to the protected register
	Read                // read it: Value is what was read
)

var kinds = [...]string{"acquire", "release", "write", "read"}

// Op is one call of a client. Times are of one clock.
type Op struct {
	Client  int // a client makes one call at a time, and none after one of unknown outcome
	Name    string
	Kind    Kind
	Call    time.Duration
	Return  time.Duration
	OK      bool // it got, freed, wrote or read what it wanted
	Unknown bool // nobody knows: the answer was lost
	Token   int64
	Floor   int64         // Write: what goes with the token
	Until   time.Duration // Acquire: the holder's deadline
	Value   int64
}

// describe tells an operation in a picture.
func describe(input, _ any) string {
	o := input.(Op)
	outcome := "refused"
	switch {
	case o.Unknown:
		outcome = "unknown"
	case o.OK:
		outcome = "ok"
	}
	return fmt.Sprintf("%s(token %d, value %d): %s", kinds[o.Kind], o.Token, o.Value, outcome)
}

// search looks for an order of each name's calls that the model allows. When
// there is none, or the search does not end, it writes a picture to path (an
// HTML page; none if path is empty) and returns an error.
func search(model porcupine.Model, history []Op, path string) error {
	ops := make([]porcupine.Operation, 0, len(history))
	count := map[string]int{}
	for _, o := range history {
		if count[o.Name]++; count[o.Name] > MaxOps {
			return fmt.Errorf("more than %d calls of %q: check a shorter history", MaxOps, o.Name)
		}
		end := int64(o.Return)
		if o.Unknown { // it may happen at any time from now on
			end = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: int64(o.Call), Return: end})
	}
	model.Partition = byName
	model.DescribeOperation = describe
	verdict, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	if verdict == porcupine.Ok {
		return nil
	}
	err := fmt.Errorf("no order of the calls explains what they returned")
	if verdict == porcupine.Unknown {
		err = fmt.Errorf("no verdict within %v: check a shorter history with fewer unknown outcomes", patience)
	}
	if path == "" {
		return err
	}
	if bad := porcupine.VisualizePath(model, info, path); bad != nil {
		return fmt.Errorf("%w; nor could it be drawn: %w", err, bad)
	}
	return fmt.Errorf("%w: see %s", err, path)
}

func byName(history []porcupine.Operation) [][]porcupine.Operation {
	place, parts := map[string]int{}, [][]porcupine.Operation{}
	for _, o := range history {
		name := o.Input.(Op).Name
		i, ok := place[name]
		if !ok {
			i = len(parts)
			place[name], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], o)
	}
	return parts
}
