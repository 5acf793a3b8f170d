package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A step is an operation of the model: a grant, or the end of one.
type step struct {
	rank   int // of its token within the window, from 1
	leaves bool
	shared bool
	limit  int
}

// A lockState is a lock as the model has it.
type lockState struct {
	granted int // grants until now
	holders int // who share it now; -1 if it has an exclusive holder
}

// lockModel is a lock that grants in the order of tokens. A holder leaves it at any time after it
// last believed in its lock.
var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, i, by := state.(lockState), input.(step), -1
		if i.shared {
			by = 1
		}
		if i.leaves {
			s.holders -= by
			return i.rank <= s.granted, s
		}
		free := s.holders == 0 || i.shared && s.holders > 0 && (i.limit == 0 || s.holders < i.limit)
		s.granted++
		s.holders += by
		return free && i.rank == s.granted, s
	},
}

// window is how many acquisitions are searched at once. Memory grows with its square.
const window = 500

// search finds acquisitions that no lock could have granted in the order of their tokens, at some
// time between call and return of each. The windows overlap by half. It returns false if it had
// not enough time.
func search(acquisitions []Acquisition, end time.Time) (illegal []finding, decided bool) {
	order := slices.SortedFunc(slices.Values(acquisitions), func(a, b Acquisition) int { return cmp.Compare(a.Token, b.Token) })
	for from := 0; from == 0 || from+window/2 < len(order); from += window / 2 {
		part := order[from:min(from+window, len(order))]
		left := time.Until(end)
		if left <= 0 {
			return nil, false
		}
		switch porcupine.CheckOperationsTimeout(lockModel, operations(part), left) {
		case porcupine.Illegal:
			first, last := part[0], part[len(part)-1]
			return []finding{found(NoOrder, first, last, "no lock could have granted %d acquisitions of %s in the order of their tokens: %v to %v", len(part), first.Name, first, last)}, true
		case porcupine.Unknown:
			return nil, false
		}
	}
	return nil, true
}

// operations returns the steps of acquisitions that are in the order of their tokens.
func operations(acquisitions []Acquisition) (all []porcupine.Operation) {
	for i, a := range acquisitions {
		s := step{rank: i + 1, shared: a.Shared, limit: a.Limit}
		all = append(all, porcupine.Operation{Input: s, Call: int64(a.Called), Return: int64(a.Returned)})
		s.leaves = true
		all = append(all, porcupine.Operation{Input: s, Call: int64(a.Until), Return: math.MaxInt64})
	}
	return all
}
