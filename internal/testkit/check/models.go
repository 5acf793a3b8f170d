package check

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// lock is the state of a lock in the model.
type lock struct {
	holder int64         // its token; 0 means free
	until  time.Duration // when the holder stops by itself
	top    int64         // the greatest token so far
}

// TryLock checks the calls of Acquire and Release of exclusive locks. A lock is
// granted when it is free, or when its holder has stopped by itself, with a token
// greater than all before; a refusal needs no reason. On failure a picture goes
// to path, an HTML page.
func TryLock(history []Op, path string) error {
	return search(porcupine.Model{
		Init:          func() any { return lock{} },
		Step:          func(state, input, _ any) (bool, any) { return state.(lock).step(input.(Op)) },
		DescribeState: func(state any) string { return fmt.Sprintf("holder %d, top %d", state.(lock).holder, state.(lock).top) },
	}, history, path)
}

func (l lock) step(o Op) (bool, any) {
	switch {
	case o.Kind == Release && (o.OK || o.Unknown):
		if l.holder == o.Token {
			l.holder = 0
		}
		return true, l
	case o.Kind == Release || !o.OK:
		return true, l
	}
	if o.Token <= l.top || l.holder != 0 && o.Return < l.until {
		return false, l
	}
	return true, lock{holder: o.Token, until: o.Until, top: o.Token}
}

// register is the state of a guarded register in the model.
type register struct{ floor, value int64 }

// Register checks the calls of Write and Read of registers that refuse tokens
// smaller than the floor they have seen. On failure a picture goes to path, an
// HTML page.
func Register(history []Op, path string) error {
	model := porcupine.NondeterministicModel{
		Init:          func() []any { return []any{register{}} },
		Step:          func(state, input, _ any) []any { return state.(register).step(input.(Op)) },
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return search(model.ToModel(), history, path)
}

// step returns the states that a call may lead to; a write of unknown outcome
// may have happened or not.
func (r register) step(o Op) []any {
	written := register{floor: max(r.floor, o.Floor, o.Token), value: o.Value}
	if o.Floor > 0 {
		written.floor = max(r.floor, o.Floor)
	}
	admits := o.Token >= r.floor
	switch {
	case o.Kind == Read && o.Unknown:
		return []any{r}
	case o.Kind == Read:
		return keep(r, r.value == o.Value)
	case o.Unknown && admits:
		return []any{r, written}
	case o.Unknown:
		return []any{r}
	case o.OK:
		return keep(written, admits)
	}
	return keep(r, !admits)
}

func keep(r register, ok bool) []any {
	if !ok {
		return nil
	}
	return []any{r}
}
