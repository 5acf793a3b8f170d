package redlock

import "sync"

// News about a name says who is next: the name of a request in the nodes' queues, a mode, or one of
// these.
const (
	everybody = "*" // all may ask
	somebody  = "-" // one of the waiters, it is unknown which
)

// news distributes the nodes' messages about a name to the requests that wait for it.
type news struct {
	mu     sync.Mutex                        // guards byName and serializes sends
	byName map[string]map[string]chan string // by name, then by the request's name in the nodes' queues
}

// subscribe returns a channel that receives the latest news about a name. The caller must call
// stop.
func (s *news) subscribe(name, caller string) (ch <-chan string, stop func()) {
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

// notify tells the waiters of a name who is next. With an empty name it tells all waiters of all
// names, because messages may have been missed.
func (s *news) notify(name, first string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		tell(s.byName[name], first)
		return
	}
	for _, waiting := range s.byName {
		tell(waiting, first)
	}
}

// tell sends news to subscribers. It replaces news that has not been read, unless that is more
// specific: "you are next" must not be replaced by "somebody is next". The
// caller holds news.mu, so that no other send can fill the channel in between.
func tell(subscribers map[string]chan string, first string) {
	for caller, ch := range subscribers {
		select {
		case last := <-ch:
			if last != somebody && (first == somebody || last == caller || last == everybody) {
				ch <- last
				continue
			}
		default:
		}
		ch <- first
	}
}
