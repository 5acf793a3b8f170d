package pglock

import "sync"

// sleepers are the requests of this process that wait in the server, by key. They sleep while the
// lease of a vanished holder runs, and are woken when its row is cleared earlier.
type sleepers struct {
	mu    sync.Mutex // guards byKey
	byKey map[int64]chan struct{}
}

// enter registers a request. Only one of this process waits in the server for a key.
func (s *sleepers) enter(key int64) (woken chan struct{}, leave func()) {
	woken = make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey[key] = woken
	return woken, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.byKey[key] == woken {
			delete(s.byKey, key)
		}
	}
}

// wake makes the request for a key ask again.
func (s *sleepers) wake(key int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.byKey[key] <- struct{}{}:
	default: // nobody waits, or is woken already
	}
}
