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
	// Other is the class of names beyond the first MaxClasses, and the type of unknown errors.
	Other = "_OTHER"
	// MaxClasses is the number of classes that each kind has in a table, without Other.
	MaxClasses = 20
	// KindRate is the kind of limiters in a table.
	KindRate = "ratelimit"

	longestClass = 100 // bytes
)

// Labels identify a series.
type Labels struct{ Engine, Mode, Kind, Class string }

// Table has one series of type T for each set of labels. It is safe for concurrent use.
type Table[T any] struct {
	class  func(name string) string // nil means Class
	create func(Labels) *T

	series atomic.Pointer[map[Labels]*T] // copied on each write, since it is read much more often

	mu      sync.Mutex                     // guards classes, and writes to series
	classes map[string]map[string]struct{} // by kind
}

// NewTable returns an empty table. create makes the series of new labels. class may be nil.
func NewTable[T any](class func(name string) string, create func(Labels) *T) *Table[T] {
	t := &Table[T]{class: class, create: create, classes: map[string]map[string]struct{}{}}
	t.series.Store(&map[Labels]*T{})
	return t
}

// Of returns the series of a name. mode may be empty.
func (t *Table[T]) Of(engine, mode, kind, name string) *T {
	labels := Labels{Engine: engine, Mode: mode, Kind: kind}
	if t.class != nil {
		labels.Class = valid(t.class(name))
	} else {
		labels.Class = valid(Class(kind, name))
	}
	if s := (*t.series.Load())[labels]; s != nil {
		return s
	}
	return t.add(labels)
}

// add returns the series of labels that may be new.
func (t *Table[T]) add(labels Labels) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.classes[labels.Kind]
	if known == nil {
		known = map[string]struct{}{}
		t.classes[labels.Kind] = known
	}
	if _, ok := known[labels.Class]; !ok && labels.Class != Other {
		if len(known) < MaxClasses {
			known[labels.Class] = struct{}{}
		} else {
			labels.Class = Other
		}
	}
	if s := (*t.series.Load())[labels]; s != nil {
		return s
	}
	next, s := maps.Clone(*t.series.Load()), t.create(labels)
	next[labels] = s
	t.series.Store(&next)
	return s
}

// All returns all series. The caller must not change the map.
func (t *Table[T]) All() map[Labels]*T { return *t.series.Load() }

// Class returns the default class of a name: the text before the first colon or slash. The names
// of elections, cron jobs and limiters are few, so each is a class; for the lock that claims a tick
// of a job the class is the name of the job.
func Class(kind, name string) string {
	switch kind {
	case fencelock.KindElection, KindRate:
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

// valid returns class, or Other if it cannot be a label.
func valid(class string) string {
	if class == "" || len(class) > longestClass || !utf8.ValidString(class) {
		return Other
	}
	return class
}
