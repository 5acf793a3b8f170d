package watch

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Changes returns the events between two listings that were taken elapsed apart. Both are ordered
// by name.
func Changes(before, after []driver.Status, elapsed time.Duration, now time.Time) []driver.Event {
	var events []driver.Event
	for len(before) > 0 || len(after) > 0 {
		var old, new driver.Status
		if len(after) == 0 || len(before) > 0 && before[0].Name <= after[0].Name {
			old, before = before[0], before[1:]
		}
		if len(after) > 0 && (old.Name == "" || old.Name == after[0].Name) {
			new, after = after[0], after[1:]
		}
		events = append(events, ends(old, new, elapsed, now)...)
		events = append(events, begins(old, new)...)
	}
	return events
}

// ends returns events for holders and waiters that are gone.
func ends(old, new driver.Status, elapsed time.Duration, now time.Time) []driver.Event {
	var events []driver.Event
	holding, waiting := holders(new), waiters(new)
	for _, h := range old.Holders {
		if holding[keyOf(h)] {
			continue
		}
		kind := driver.EventReleased
		if h.TTL > 0 && h.TTL <= elapsed && now.Sub(h.Since) >= h.Lease/2 { // a hand-over begins with a short lease
			kind = driver.EventLost
		}
		events = append(events, held(kind, old.Name, h, now))
	}
	granted := map[string]bool{}
	for _, h := range new.Holders {
		granted[h.Owner] = true
	}
	for _, w := range old.Waiters {
		if !waiting[w.Owner] && !granted[w.Owner] {
			events = append(events, waited(driver.EventLeft, old.Name, w, now))
		}
	}
	return events
}

// begins returns events for new holders and waiters.
func begins(old, new driver.Status) []driver.Event {
	var events []driver.Event
	held0, waited0 := holders(old), waiters(old)
	for _, h := range new.Holders {
		if !held0[keyOf(h)] {
			events = append(events, held(driver.EventAcquired, new.Name, h, h.Since))
		}
	}
	for _, w := range new.Waiters {
		if !waited0[w.Owner] {
			events = append(events, waited(driver.EventWaiting, new.Name, w, w.Since))
		}
	}
	return events
}

// key identifies an acquisition. Foreign owners may repeat, with another token.
type key struct {
	owner string
	token int64
}

func keyOf(h driver.Holder) key { return key{h.Owner, h.Token} }

func holders(s driver.Status) map[key]bool {
	set := make(map[key]bool, len(s.Holders))
	for _, h := range s.Holders {
		set[keyOf(h)] = true
	}
	return set
}

func waiters(s driver.Status) map[string]bool {
	set := make(map[string]bool, len(s.Waiters))
	for _, w := range s.Waiters {
		set[w.Owner] = true
	}
	return set
}

func held(kind driver.EventKind, name string, h driver.Holder, at time.Time) driver.Event {
	return driver.Event{Identity: h.Identity, Kind: kind, Name: name, Owner: h.Owner, Token: h.Token, Time: at}
}

func waited(kind driver.EventKind, name string, w driver.Waiter, at time.Time) driver.Event {
	return driver.Event{Identity: w.Identity, Kind: kind, Name: name, Owner: w.Owner, Time: at}
}
