package twin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Name is what the server stores about one name, its clock, and its subscribers.
type Name struct {
	Now         int64 // microseconds
	Keys        map[string]*Key
	Listening   map[string]bool // clients that are subscribed
	Counts      bool            // PUBLISH counts all subscribers
	Quarantine  int64           // milliseconds; 0 means off
	Retention   int64           // how long the last token is kept, in milliseconds
	Incarnation string
	Said        []string // messages published by the last call, "client text"

	mode, limit, text string // the kind of holder: free, x, s with its limit, or foreign; and the text of the key
	used              int64  // the total weight of shared holders
	lined             bool   // there is a waiter
}

// Key is a string or a sorted set.
type Key struct {
	Text  string
	Set   map[string]int64
	Until int64 // milliseconds; 0 means that it does not expire
}

// The keys of the name "n". Keys of a client or an owner continue with its id.
const (
	Lock    = "lock:n"
	Fence   = "fencelock:2:fence:{lock:n}"
	Queue   = "fencelock:2:queue:{lock:n}"
	alive   = "fencelock:2:alive:" // on a Cluster also the tag
	closed  = "fencelock:2:closed:{lock:n}"
	left    = "fencelock:2:left:{lock:n}:"
	resized = "fencelock:2:limit:{lock:n}"
	batched = "fencelock:2:batch:"
	Marker  = "fencelock:incarnation"
)

// Put writes a string that expires after life.
func (n *Name) Put(key, text string, life int64) { n.putUntil(key, text, n.ms()+life) }

func (n *Name) putUntil(key, text string, until int64) {
	n.Keys[key] = &Key{Text: text}
	n.end(key, until)
}

// get returns a string, and whether it exists.
func (n *Name) get(key string) (string, bool) {
	k := n.Keys[key]
	if k == nil || k.Set != nil {
		return "", false
	}
	return k.Text, true
}

func (n *Name) there(key string) bool { return n.Keys[key] != nil }

// Delete deletes a key and reports whether it existed.
func (n *Name) Delete(key string) bool {
	there := n.there(key)
	delete(n.Keys, key)
	return there
}

// end sets the expiry of a key if it exists.
func (n *Name) end(key string, until int64) {
	k := n.Keys[key]
	switch {
	case k == nil:
	case until <= n.ms():
		delete(n.Keys, key)
	default:
		k.Until = until
	}
}

// remains returns the rest of a key's life, like PTTL.
func (n *Name) remains(key string) int64 {
	switch k := n.Keys[key]; {
	case k == nil:
		return -2
	case k.Until == 0:
		return -1
	default:
		return k.Until - n.ms()
	}
}

// member is a member of a set.
type member struct {
	text  string
	score int64
}

// members returns the members with a score from low to high, ordered by score.
func (n *Name) members(key string, low, high int64) (list []member) {
	k := n.Keys[key]
	if k == nil {
		return nil
	}
	for _, text := range slices.Sorted(maps.Keys(k.Set)) {
		if score := k.Set[text]; low <= score && score <= high {
			list = append(list, member{text, score})
		}
	}
	slices.SortStableFunc(list, func(a, b member) int { return int(min(max(a.score-b.score, -1), 1)) })
	return list
}

func (n *Name) add(key, text string, score int64) {
	if n.Keys[key] == nil {
		n.Keys[key] = &Key{Set: map[string]int64{}}
	}
	n.Keys[key].Set[text] = score
}

// score returns the score of a member, or 0 if it does not exist.
func (n *Name) score(key, text string) int64 {
	if k := n.Keys[key]; k != nil {
		return k.Set[text]
	}
	return 0
}

// remove removes a member, and the set if it is empty then.
func (n *Name) remove(key, text string) bool {
	k := n.Keys[key]
	if k == nil {
		return false
	}
	_, there := k.Set[text]
	if delete(k.Set, text); k.Set != nil && len(k.Set) == 0 {
		delete(n.Keys, key)
	}
	return there
}

// rank returns the rank of a request in the queue, from 1, or 0 if it is not in the queue.
func (n *Name) rank(entry string) int {
	return slices.IndexFunc(n.waiting(), func(m member) bool { return m.text == entry }) + 1
}

func (n *Name) waiting() []member { return n.members(Queue, 0, forever) }

const forever = 1 << 60

func (n *Name) ms() int64 { return floorDiv(n.Now, 1000) }

// floorDiv divides and rounds down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Sweep deletes expired keys.
func (n *Name) Sweep() {
	maps.DeleteFunc(n.Keys, func(_ string, k *Key) bool { return k.Until > 0 && k.Until <= n.ms() })
}

// Dump returns everything as text, one key per line.
func (n *Name) Dump() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(n.Keys)) {
		k := n.Keys[key]
		fmt.Fprintf(&b, "%s=%s", key, k.Text)
		if k.Set != nil {
			for _, m := range n.members(key, 0, forever) {
				fmt.Fprintf(&b, "%s|%d,", m.text, m.score)
			}
		}
		fmt.Fprintf(&b, "@%d\n", k.Until)
	}
	return b.String()
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
