package lockmetrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
)

const (
	other      = "_OTHER"    // the class of names beyond the first maxClasses, and the type of unknown errors
	maxClasses = 20          // of each kind in a table, without other
	kindRate   = "ratelimit" // the kind of limiters in a table

	longestClass = 100 // bytes
)

// labels identify a series.
type labels struct{ engine, mode, kind, class string }

// table has one series of type T for each set of labels. It is safe for concurrent use.
type table[T any] struct {
	class  func(name string) string // nil means classOf
	create func(labels) *T

	series atomic.Pointer[map[labels]*T] // copied on each write, since it is read much more often

	mu      sync.Mutex                     // guards classes, and writes to series
	classes map[string]map[string]struct{} // by kind
}

// newTable returns an empty table. create makes the series of new labels. class may be nil.
func newTable[T any](class func(name string) string, create func(labels) *T) *table[T] {
	t := &table[T]{class: class, create: create, classes: map[string]map[string]struct{}{}}
	t.series.Store(&map[labels]*T{})
	return t
}

// of returns the series of a name. mode may be empty.
func (t *table[T]) of(engine, mode, kind, name string) *T {
	l := labels{engine: engine, mode: mode, kind: kind}
	if t.class != nil {
		l.class = valid(t.class(name))
	} else {
		l.class = valid(classOf(kind, name))
	}
	if s := (*t.series.Load())[l]; s != nil {
		return s
	}
	return t.add(l)
}

// add returns the series of labels that may be new.
func (t *table[T]) add(l labels) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.classes[l.kind]
	if known == nil {
		known = map[string]struct{}{}
		t.classes[l.kind] = known
	}
	if _, ok := known[l.class]; !ok && l.class != other {
		if len(known) < maxClasses {
			known[l.class] = struct{}{}
		} else {
			l.class = other
		}
	}
	if s := (*t.series.Load())[l]; s != nil {
		return s
	}
	next, s := maps.Clone(*t.series.Load()), t.create(l)
	next[l] = s
	t.series.Store(&next)
	return s
}

// all returns all series. The caller must not change the map.
func (t *table[T]) all() map[labels]*T { return *t.series.Load() }

// classOf returns the default class of a name: the text before the first colon or slash. The names
// of elections, cron jobs and limiters are few, so each is a class; for the lock that claims a tick
// of a job the class is the name of the job.
func classOf(kind, name string) string {
	switch kind {
	case fencelock.KindElection, kindRate:
		return name
	case fencelock.KindCron:
		if at := strings.LastIndexByte(name, '@'); at > 0 {
			return name[:at]
		}
		return name
	}
	name = strings.TrimLeft(name, ":/")
	if at := strings.IndexAny(name, ":/"); at >= 0 {
		return name[:at]
	}
	return name
}

// valid returns class, or other if it cannot be a label.
func valid(class string) string {
	if class == "" || len(class) > longestClass || !utf8.ValidString(class) {
		return other
	}
	return class
}
