package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// session is a connection that locks live on. Losing it is losing them: nobody
// ever holds a lock on a connection that replaced the one it was taken on.
type session struct {
	*wire
	engine  *Engine
	ttl     time.Duration // the server's idle timeout; 0 for the engine's own session
	id      int32         // in fencelock.session
	backend int32         // the server's process
	epoch   int64
	closed  time.Time // the quarantine ends
	room    int       // how many locks the engine may hold on this server
	clean   clean

	// Guarded by Engine.mu.
	holds map[*hold]struct{}
	keys  map[int64]int // how many of holds have this key
	doubt bool          // take no more locks on it
}

var (
	stmtBeat = &statement{"beat", `WITH b AS (
	UPDATE fencelock.session SET until = clock_timestamp() + $2::bigint * interval '1 ms', heard = clock_timestamp() WHERE id = $1::integer)
SELECT pg_backend_pid()`}
	stmtUnlock       = &statement{"unlock", `SELECT pg_advisory_unlock($1::bigint)`}
	stmtUnlockShared = &statement{"unlock_shared", `SELECT pg_advisory_unlock_shared($1::bigint)`}
	stmtUnlockQueue  = &statement{"unlock_queue", `SELECT pg_advisory_unlock(1717923429, hashint8($1::bigint))`}
	// Release is unlock for a holder whose row is deleted afterwards. The mark that
	// says so is of its token: the row of the next holder, who may let go or vanish
	// before this one's is deleted, is another matter. The mark of the key is for who
	// is known to come next, see fencelock.ahead; NULL spares it.
	stmtRelease = &statement{"release", `SELECT pg_try_advisory_lock(1717923431, $2::integer),
	pg_try_advisory_lock(1717923432, $3::integer), pg_advisory_unlock($1::bigint)`}
	stmtReleased = &statement{"released", `SELECT pg_advisory_unlock(1717923431, $1::integer),
	pg_advisory_unlock(1717923432, $2::integer)`}
	stmtUnlockAll = &statement{"unlock_all", `SELECT pg_advisory_unlock_all()`}
	stmtForget    = &statement{"forget", `DELETE FROM fencelock.holder WHERE owner = $1::text AND key = $2::bigint`}
	// Late is forget once the lock is free: when it runs matters to nobody.
	stmtForgetLate = &statement{"forget_late", stmtForget.sql}
	stmtLeave      = &statement{"leave", `DELETE FROM fencelock.session WHERE id = $1::integer`}
)

// watch ends locks that nobody renewed, and a connection whose server does not
// answer. It ends with the connection, whose locks are lost then.
func (s *session) watch() {
	limit := s.ttl
	if limit == 0 {
		limit = ownLimit
	}
	tick := time.NewTicker(max(limit/8, 20*time.Millisecond))
	defer tick.Stop()
	for {
		if err := s.allow(limit); err != nil {
			s.kill(err)
		}
		select {
		case <-s.dead:
			s.engine.lose(s)
			return
		case now := <-tick.C:
			if s.silent(now) > limit && !s.waits() {
				s.kill(errSilent)
				continue
			}
			s.engine.expire(s, now)
		}
	}
}

// ownLimit is how long the engine's own session waits for an answer.
const ownLimit = 10 * time.Second

// waits reports whether the oldest statement is one that still waits for a lock.
func (s *session) waits() bool {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	return len(s.calls) > 0 && s.calls[0].stmt.blocks() && !s.calls[0].answered()
}

// beat renews every lease of the session, if it lives.
func (s *session) beat() *call { return s.send(stmtBeat, s.id, s.ttl) }

// beaten reads the answer of beat.
func (s *session) beaten(rows []row, err error) error {
	switch {
	case err != nil:
		return err
	case len(rows) != 1 || int32(rows[0].int(0)) != s.backend:
		s.kill(errMoved)
		return errMoved
	}
	return nil
}

var errMoved = errors.New("a pooler moved the connection to another server process; use session pooling, or no pooler")

// unlock frees a key. One of which the server does not say that it is free takes
// the whole connection with it, if the connection holds nothing else; otherwise
// the connection takes no more locks and ends with the last one.
func (s *session) unlock(key int64, mode driver.Mode) error {
	stmt := stmtUnlock
	if mode == driver.Shared {
		stmt = stmtUnlockShared
	}
	_, err := s.run(context.Background(), stmt, key)
	if err != nil {
		s.distrust(err)
	}
	return err
}

// distrust keeps a session from being used for more locks.
func (s *session) distrust(err error) {
	s.engine.mu.Lock()
	s.doubt = true
	idle := len(s.holds) == 0
	s.engine.mu.Unlock()
	if idle {
		s.close(fmt.Errorf("closed after %w", err))
	}
}

// usable reports whether the session may take more locks.
func (s *session) usable() bool {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return !s.doubt && s.over() == nil
}

// has reports whether the session holds key already.
func (s *session) has(key int64) bool {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.keys[key] > 0
}

// quarantine returns an error while the server may have forgotten who holds.
func (s *session) quarantine(now time.Time) error {
	if !now.Before(s.closed) {
		return nil
	}
	return &quarantined{s.closed}
}

// quarantined is why a server grants nothing yet.
type quarantined struct{ until time.Time }

func (q *quarantined) Error() string {
	return fmt.Sprintf("the server started anew and may have forgotten who holds; it grants nothing until %s", q.until.Format(time.RFC3339))
}

// retire says goodbye to a connection that is not needed any more.
func (s *session) retire(cause error) {
	s.send(stmtLeave, s.id)
	s.close(cause)
}
