package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// session is a connection that locks live on. Losing it is losing them: nobody
// ever holds a lock on a connection that replaced the one it was taken on. Nothing
// runs on one that may take longer than a sixth of its leases, but on those of waiters.
type session struct {
	*pipe.Conn
	dialer  *dialer
	ttl     time.Duration // the server's idle timeout; 0 for the engine's own session
	waiter  bool          // it is for one request that waits, and for what becomes of it
	id      int32         // of its advisory lock
	host    string        // of the DSN, with its port
	backend int32         // the server's process
	closed  time.Time     // the quarantine ends
	slots   int           // how many locks the server has room for
	fn      functions
	shared  sharedKeys  // who shares its locks
	stale   atomic.Bool // its functions are gone, or it is silent: no more requests are made on it

	holds map[*hold]struct{} // guarded by holdings.mu
}

// functions are the server's, by name.
type functions map[string]pipe.Func

// watch ends locks that nobody renewed, and a connection whose server does not
// answer. It ends with the connection, whose locks are lost then.
func (s *session) watch() {
	limit := s.ttl
	if limit == 0 {
		limit = s.dialer.cfg.Timeout
	}
	tick := time.NewTicker(max(min(limit/8, s.dialer.cfg.Timeout/4), 20*time.Millisecond))
	defer tick.Stop()
	var cancelled *pipe.Call
	for {
		s.AllowWrites(limit)
		select {
		case <-s.Dead():
			s.dialer.forget(s)
			return
		case now := <-tick.C:
			oldest, since := s.Oldest()
			if oldest == nil {
				s.dialer.onTick(s, now)
				continue
			}
			silent := now.Sub(since) - oldest.Patience
			if silent > limit || silent > s.dialer.cfg.Timeout && s.dialer.isFree(s) {
				s.Kill(errSilent)
			} else if silent > limit/4 && oldest != cancelled && !s.waiter {
				cancelled = oldest  // its own limit, lock_timeout, is by a clock that may be set
				go s.cancelOldest() // ends with cancelLimit
			}
			if silent > s.dialer.cfg.Timeout { // what it holds may be renewed yet, and others need not wait for that
				s.stale.Store(true)
				s.MarkSilent()
			}
			s.dialer.onTick(s, now)
		}
	}
}

// errSilent is why a connection is closed whose server does not answer.
var errSilent = pipe.ErrSilent

// waitBound is how long a request waits in the server before it asks again. A statement
// that waits holds a snapshot, and keeps VACUUM from its work in the whole database.
func waitBound(ttl time.Duration) time.Duration { return min(30*time.Second, ttl/3) }

// cancelLimit is how long something that was cancelled may take to leave the server.
const cancelLimit = time.Second

// errLate is what comes of a request to the engine's own session that is cancelled.
var errLate = errors.New("the server took too long: it waits for its disk, for a standby, or for somebody's lock on a table")

// cancelOldest asks the server to end the statement that it is at. All of them are made
// so that they may be ended. Nothing that commits on the engine's own session is believed
// then; and if nobody knows whether the cancel may still come, the session ends.
func (s *session) cancelOldest() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	var doubt error
	if s.ttl == 0 {
		doubt = errLate
	}
	if err := s.RequestCancel(ctx, doubt); err != nil && doubt != nil {
		s.Kill(errSilent)
	}
}

// unlock frees a key of which the server may have given the session one lock more than
// anybody has use for. A session that cannot say so is ended.
func (s *session) unlock(key int64, mode driver.Mode) error {
	fn := "pg_advisory_unlock"
	if mode == driver.Shared {
		fn = "pg_advisory_unlock_shared"
	}
	_, err := s.Call(s.fn[fn], key).Result(context.Background())
	if err != nil {
		s.Kill(fmt.Errorf("a lock could not be given back: %w", err))
	}
	return err
}

// outdated notes that the functions of the session are gone, as when the schema was dropped:
// it keeps what it holds, and the next request opens another one.
func (s *session) outdated(err error) {
	if missing(err) {
		s.stale.Store(true)
	}
}

// fit reports whether a session can make requests.
func (s *session) fit() bool { return s != nil && s.Err() == nil && !s.stale.Load() }

// leaveQueue gives a ticket back, which keeps everybody else out for as long as the session
// lives. If the server cannot take it now it is tried on.
func (s *session) leaveQueue(owner string, ticket int64) {
	left := func(ctx context.Context, c *pipe.Call) bool {
		_, err := c.Result(ctx)
		return err == nil || s.Err() != nil || missing(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	c := s.Call(s.fn["leave_queue"], owner, ticket)
	if left(ctx, c) {
		return
	}
	go func() { // ends when the server has taken it, or with the session
		for pause := retry.NewBackoff(firstRepair, lastRepair); !left(context.Background(), c); {
			_ = pause.Wait(context.Background())
			c = s.Call(s.fn["leave_queue"], owner, ticket)
		}
	}()
}

// The pauses between two tries of what must be done while a session lives.
const (
	firstRepair = 100 * time.Millisecond
	lastRepair  = 10 * time.Second
)

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
