package redlock

import "sync"

// News of a name is whose turn it is: a name in the nodes' queues, a mode, or one
// of these.
const (
	everybody = "*" // all may look
	somebody  = "-" // one of those who wait, nobody knows which
)

// news passes what nodes tell of a name on to those who compete for it.
type news struct {
	mu     sync.Mutex                        // guards byName, and that one at a time sends
	byName map[string]map[string]chan string // those who compete for a name, by their names in the nodes' queues
}

// subscribe returns where news of a name comes: whose turn it is, the last news only.
// The caller calls stop at the end.
func (s *news) subscribe(name, caller string) (ear <-chan string, stop func()) {
	mine := make(chan string, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[name] == nil {
		s.byName[name] = map[string]chan string{}
	}
	s.byName[name][caller] = mine
	return mine, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.byName[name], caller); len(s.byName[name]) == 0 {
			delete(s.byName, name)
		}
	}
}

// notify tells those who compete for a name whose turn it is. Without a name it tells
// everybody to look: news may have been missed.
func (s *news) notify(name, first string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		tell(s.byName[name], first)
		return
	}
	for _, ears := range s.byName {
		tell(ears, first)
	}
}

// tell tells subscribers whose turn it is. News that nobody has read yet is replaced,
// unless it says more: who was told to go first must not hear instead that somebody
// does. The caller holds news.mu, so that nobody sends between the two, and there is
// room.
func tell(subscribers map[string]chan string, first string) {
	for caller, ear := range subscribers {
		select {
		case last := <-ear:
			if last != somebody && (first == somebody || last == caller || last == everybody) {
				ear <- last
				continue
			}
		default:
		}
		ear <- first
	}
}
