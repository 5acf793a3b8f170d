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

// session is a connection on which locks are held. If it is lost, so are its locks; they are never
// carried over to another connection. Except on the sessions of waiters, a statement is cancelled after
// a quarter of the leases, and waits for a lock in the server for a thirty-second of them.
type session struct {
	*pipe.Conn
	dialer  *dialer
	ttl     time.Duration // the server's idle timeout; 0 for the engine's own session
	waiter  bool          // it serves one waiting request, and then the lock it gets
	id      int32         // of its advisory lock and its rows
	host    string        // of the DSN, with the port
	backend int32         // the server's process
	closed  time.Time     // end of the quarantine
	rests   bool          // the server does not know yet that the quarantine is over; only watch uses it
	slots   int           // size of the server's lock table
	fn      functions
	shared  sharedKeys  // counts the holders of its shared locks
	stale   atomic.Bool // its functions are gone, or it does not answer: no new requests use it

	holds map[*hold]struct{} // guarded by holdings.mu
}

// functions are the server's functions, by name.
type functions map[string]pipe.Func

// watch ends expired locks, and the connection if the server does not answer. It returns when the
// connection ends, which loses the session's locks.
func (s *session) watch() {
	limit := s.ttl
	if limit == 0 {
		limit = s.dialer.cfg.Timeout
	}
	tick := time.NewTicker(max(min(limit/8, s.dialer.cfg.Timeout/4), 20*time.Millisecond))
	defer tick.Stop()
	var cancelled, probed *pipe.Call
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
				cancelled = oldest  // its own limit, lock_timeout, depends on a clock that may be set
				go s.cancelOldest() // ends with cancelLimit
			}
			if silent > s.dialer.cfg.Timeout/4 && oldest != probed {
				probed = oldest           // while the server sends something, calls wait for longer, and are then repeated on another connection
				go s.dialer.probe(s.host) // ends within Timeout
			}
			if silent > s.dialer.cfg.Timeout { // its locks may still be renewed, but other requests need not wait for it
				s.stale.Store(true)
				s.MarkSilent()
			}
			s.dialer.onTick(s, now)
		}
	}
}

// errSilent is why a connection is closed whose server does not answer.
var errSilent = pipe.ErrSilent

// waitBound is how long one statement waits in the server. A waiting statement holds a snapshot,
// which keeps VACUUM from cleaning up the database.
func waitBound(ttl time.Duration) time.Duration { return min(30*time.Second, ttl/3) }

// cancelLimit is how long a cancelled statement may take to end.
const cancelLimit = time.Second

// errLate is the error of a cancelled request on the engine's own session.
var errLate = errors.New("the server took too long: it waits for its disk, for a standby, or for a lock on a table")

// cancelOldest asks the server to cancel its current statement; all statements tolerate that. On
// the engine's own session the result of a commit is then uncertain. If it is unknown whether the
// cancel may still arrive, the session ends.
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

// unlock releases a key that the server may have granted to the session once too often. If it
// fails, the session ends.
func (s *session) unlock(key int64, mode driver.Mode) error {
	fn := "pg_advisory_unlock"
	if mode == driver.Shared {
		fn = "pg_advisory_unlock_shared"
	}
	_, err := s.Call(s.fn[fn], key).Result(context.Background())
	if err != nil {
		s.Kill(fmt.Errorf("a lock could not be released: %w", err))
	}
	return err
}

// outdated marks the session as stale if its functions are gone, because the schema was dropped.
// The session keeps its locks; the next request opens another one.
func (s *session) outdated(err error) {
	if missing(err) {
		s.stale.Store(true)
	}
}

// usable reports whether a session can serve requests.
func (s *session) usable() bool { return s != nil && s.Err() == nil && !s.stale.Load() }

// leaveQueue returns a ticket, which blocks all later requests as long as the session lives. If the
// first attempt fails, it retries in the background.
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
	go func() { // ends when the ticket is returned, or with the session
		for pause := retry.NewBackoff(firstRepair, lastRepair); !left(context.Background(), c); {
			_ = pause.Wait(context.Background())
			c = s.Call(s.fn["leave_queue"], owner, ticket)
		}
	}()
}

// retire deletes the session's row, before the session is closed on purpose. The row would otherwise
// remain until a sweep.
func (s *session) retire() *pipe.Call { return s.Call(s.fn["retire"], s.id) }

// part closes a session without locks that is not needed.
func (s *session) part() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	_, _ = s.retire().Wait(ctx) // if it fails, a sweep deletes the row
	s.Close(errSpare)
}

// The pauses between two attempts of what must be done while a session lives.
const (
	firstRepair = 100 * time.Millisecond
	lastRepair  = 10 * time.Second
)

// quarantine returns an error while earlier leases of a restarted server may still be valid.
func (s *session) quarantine(now time.Time) error {
	if !now.Before(s.closed) {
		return nil
	}
	return &quarantined{s.closed}
}

// endQuarantine tells the server that the quarantine is over, so that sessions of clients whose clock
// is behind need not wait for as long once more. If it fails, they wait.
func (s *session) endQuarantine(now time.Time) {
	if fn, ok := s.fn["rested"]; ok && s.rests && s.quarantine(now) == nil { // earlier functions lack it
		s.rests = false
		go func() { _, _ = s.Call(fn).Wait(context.Background()) }() // ends with the answer or the connection
	}
}

// quarantined is the error of a server that grants nothing yet.
type quarantined struct{ until time.Time }

func (q *quarantined) Error() string {
	return fmt.Sprintf("the server was restarted and may have lost its locks; it grants nothing until %s", q.until.Format(time.RFC3339))
}
