package explore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"github.com/fencelock/fencelock/internal/hold"
)

// A Key has what the future of a state depends on.
type Key []byte

// key appends the key of s to b.
func (m Model[S]) key(s S, b []byte) []byte {
	m.Key(s, (*Key)(&b))
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

// CheckKey compares the key of a model with whole states, of which it visits up to m.Limit: two states
// with one key must lead to the same keys, and break the same rule. A key that merges states with
// different futures would hide faults. It returns how many states it has compared, and two states that
// differ.
func CheckKey[S any](m Model[S]) (states, keys int, err error) {
	whole := newSeen()
	type future struct {
		after []byte // the keys of all successors
		first S
	}
	known := map[[2]uint64]future{}
	whole.add(Whole(m.Init, nil))
	var b, all []byte
	var actions []Action
	for level := []S{m.Init}; len(level) > 0 && states < m.Limit; {
		var next []S
		for _, s := range level {
			states++
			var list [][2]uint64
			actions = m.next(s, actions[:0])
			for _, a := range actions {
				n := m.after(s, a)
				b = m.key(n, b[:0])
				list = append(list, whole.hash(b))
				if whole.add(Whole(n, nil)) {
					next = append(next, n)
				}
			}
			slices.SortFunc(list, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
			all = append(all[:0], m.Check(s)...)
			for _, h := range slices.Compact(list) {
				all = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(all, h[0]), h[1])
			}
			b = m.key(s, b[:0])
			k := whole.hash(b)
			if old, ok := known[k]; !ok {
				known[k] = future{bytes.Clone(all), s}
			} else if !bytes.Equal(old.after, all) {
				return states, len(known), fmt.Errorf("two states have one key and different futures:\n%s\n%s", m.Show(old.first), m.Show(s))
			}
		}
		level = next
	}
	return states, len(known), nil
}

// Whole appends everything that can be reached from v, also unexported fields, except for functions
// and channels. Of a pointer that it has met before, it appends the number.
func Whole(v any, b []byte) []byte {
	w := writer{b: b, met: map[uintptr]int{}}
	w.write(reflect.ValueOf(v))
	return w.b
}

type writer struct {
	b   []byte
	met map[uintptr]int
}

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) write(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		w.number(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		w.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		w.text(fmt.Sprint(v.Float()))
	case reflect.String:
		w.text(v.String())
	case reflect.Pointer:
		switch at := v.Pointer(); {
		case v.IsNil():
			w.number(0)
		case w.met[at] > 0:
			w.number(uint64(1 + w.met[at]))
		default:
			w.met[at] = len(w.met) + 1
			w.number(1)
			w.write(v.Elem())
		}
	case reflect.Interface:
		if w.number(0); !v.IsNil() {
			w.text(v.Elem().Type().String())
			w.write(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		w.number(uint64(v.Len()))
		for i := range v.Len() {
			w.write(v.Index(i))
		}
	case reflect.Map:
		var pairs [][]byte
		for _, k := range v.MapKeys() {
			p := writer{met: w.met}
			p.write(k)
			p.write(v.MapIndex(k))
			pairs = append(pairs, p.b)
		}
		slices.SortFunc(pairs, bytes.Compare)
		w.number(uint64(len(pairs)))
		w.b = append(w.b, bytes.Join(pairs, nil)...)
	case reflect.Struct:
		for i := range v.NumField() {
			w.write(v.Field(i))
		}
	}
}
