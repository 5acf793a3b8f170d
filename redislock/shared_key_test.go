package redislock_test

import "testing"

// TestSharedKeyLastsAsLongAsItsHolders: the key that excludes others ends with the
// last of them, whoever came first.
func TestSharedKeyLastsAsLongAsItsHolders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	s.hold(e, shared(brief("n"), 0))
	s.hold(e, shared(request("n"), 0))
	if left := number64(t, s.server.Do(t, "PTTL", "lock:n")); left < 50_000 {
		t.Errorf("it ends in %d ms, its last holder in a minute", left)
	}
}

// TestDeletedSharedLockStaysDeleted: another program deleted a shared lock. The next
// holder does not bring the old ones back.
func TestDeletedSharedLockStaysDeleted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	h := s.hold(e, shared(request("n"), 2))
	s.server.Do(t, "DEL", "lock:n")
	if g := s.hold(e, shared(request("n"), 2)); g.Floor != g.Token {
		t.Errorf("floor %d, want %d", g.Floor, g.Token)
	}
	s.gone(h.renew())
	s.hold(e, shared(request("n"), 2)).free()
}
