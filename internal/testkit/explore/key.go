package explore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
)

// CheckKey compares the key of a model with whole states, of which it visits up to m.Limit: two states
// with one key must lead to the same keys, and break the same rule. A key that merges states with
// different futures would hide faults. It returns how many states it has compared, and two states that
// differ.
func CheckKey[S any](m Model[S]) (states, keys int, err error) {
	hand, whole := m.Key, newSeen()
	type future struct {
		after []byte // the keys of all successors
		first S
	}
	known := map[[2]uint64]future{}
	whole.add(Whole(m.Init, nil))
	var b, all []byte
	for level := []S{m.Init}; len(level) > 0 && states < m.Limit; {
		var next []S
		for _, s := range level {
			states++
			var list [][2]uint64
			m.Next(s, func(_ Action, step func(S)) {
				n := m.Copy(s)
				step(n)
				b = hand(n, b[:0])
				list = append(list, whole.hash(b))
				if whole.add(Whole(n, nil)) {
					next = append(next, n)
				}
			})
			slices.SortFunc(list, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
			all = append(all[:0], m.Check(s)...)
			for _, h := range slices.Compact(list) {
				all = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(all, h[0]), h[1])
			}
			b = hand(s, b[:0])
			k := whole.hash(b)
			if old, ok := known[k]; !ok {
				known[k] = future{bytes.Clone(all), s}
			} else if !bytes.Equal(old.after, all) {
				return states, len(known), fmt.Errorf("two states have one key and different futures:\n%s\n%s", m.Show(old.first, Action{}), m.Show(s, Action{}))
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
