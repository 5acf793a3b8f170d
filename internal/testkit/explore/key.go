package explore

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/fencelock/fencelock/internal/hold"
)

// A Key has what the future of a state depends on.
type Key []byte

// keyOf appends the key of s to b.
func keyOf[S State[S]](s S, b []byte) []byte {
	s.Key((*Key)(&b))
	return b
}

// Num adds numbers.
func (k *Key) Num(vs ...int64) {
	for _, v := range vs {
		*k = binary.AppendVarint(*k, v)
	}
}

// Flag adds up to eight flags.
func (k *Key) Flag(fs ...bool) {
	var v byte
	for i, f := range fs {
		if f {
			v |= 1 << i
		}
	}
	*k = append(*k, v)
}

// Text adds texts.
func (k *Key) Text(ss ...string) {
	for _, s := range ss {
		*k = append(append(*k, s...), 0)
	}
}

// Faults adds the faults that are left.
func (k *Key) Faults(f Faults) {
	for _, n := range f {
		*k = append(*k, byte(n))
	}
}

// Hold adds what a hold would do from now on. One that is over by its clock can still be renewed by an
// answer that is on its way.
func (k *Key) Hold(h hold.Hold, now hold.Instant) {
	if k.Flag(h.Ended()); h.Ended() {
		return
	}
	k.Flag(h.Renewing())
	k.Num(int64(max(h.Left(now), -1)), int64(h.Step(hold.Event{Kind: hold.Tick}, now).Wait))
}

// A hash stands for a key: among 10 million keys, the probability that any two have the same one is below
// 10^-24.
type hash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf(key []byte) hash { return hash{maphash.Bytes(seeds[0], key), maphash.Bytes(seeds[1], key)} }

// CheckKey compares the states of random walks that have one key: they must lead to the same keys, and
// break the same rule. A key that merges states with different futures would hide faults. It returns how
// many keys it has met, and two states that differ.
func CheckKey[S State[S]](m Model[S], steps int) (keys int, err error) {
	type future struct {
		broken string
		next   []hash
		first  S
	}
	known := map[hash]future{}
	compare := func(s S) string {
		f := future{broken: s.Check()}
		for _, a := range m.next(s, nil) {
			f.next = append(f.next, hashOf(keyOf(m.after(s, a), nil)))
		}
		slices.SortFunc(f.next, func(a, b hash) int { return slices.Compare(a[:], b[:]) })
		f.next = slices.Compact(f.next)
		key := hashOf(keyOf(s, nil))
		old, met := known[key]
		if met && (old.broken != f.broken || !slices.Equal(old.next, f.next)) {
			return fmt.Sprintf("%s\n%s", old.first.Show(), s.Show())
		}
		if !met {
			f.first = s.Copy()
			known[key] = f
		}
		return ""
	}
	for seed := uint64(1); steps > 0; seed++ {
		trace, differ := walk(m, seed, compare)
		if differ != "" {
			return len(known), fmt.Errorf("two states have one key and different futures:\n%s", differ)
		}
		steps -= len(trace)
	}
	return len(known), nil
}
