package pglock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// hold is one acquisition of this process.
type hold struct {
	session *session // the hold ends with it
	key     int64
	name    string
	owner   string
	token   int64
	mode    driver.Mode
	ttl     time.Duration
	lost    func(error)
	alone   bool // free also gives the session's lock back, not only this holder's share of it; set by free

	// Guarded by holdings.mu.
	lease time.Duration // the TTL as stored on the server; shorter than ttl right after a wait
	until time.Time     // when it ends unless renewed
}

// tell notifies the holder that its lock is lost.
func (h *hold) tell(cause error) {
	if h.lost != nil {
		h.lost(cause)
	}
}

// holdings are the acquisitions of this process.
type holdings struct {
	own     *ownSession
	waiters *waiterPool  // takes back the session of a hold that ended a wait
	queues  *localQueues // lets the next request of this process proceed
	quota   *lockQuota   // counts locks; released with each hold

	mu      sync.Mutex // guards all below, and the marked fields of session and hold
	byOwner map[string]*hold
	shut    bool // the engine is closed
}

// find returns the hold of a lease, nil if there is none.
func (m *holdings) find(l driver.Lease) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease(l)
}

// lease is the variant of find for callers who have mu.
func (m *holdings) lease(l driver.Lease) *hold {
	h := m.byOwner[l.Owner]
	if h == nil || h.token != l.Token || h.name != l.Name {
		return nil
	}
	return h
}

// of returns the holds on a session.
func (m *holdings) of(s *session) []*hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*hold
	for h := range s.holds {
		all = append(all, h)
	}
	return all
}

// enter turns a granted request into a hold, unless its session has ended meanwhile. The request
// must be the head of its queue.
func (m *holdings) enter(h *hold, local *localRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := h.session.Err(); err != nil {
		return err // the session's holds may have been ended already
	}
	if m.shut {
		return errEngineClosed
	}
	m.queues.change(h.key, func(t *localQueue) { t.hold(local) })
	m.byOwner[h.owner] = h
	h.session.holds[h] = struct{}{}
	if h.mode == driver.Shared {
		h.session.shared.enter(h.key)
	}
	return nil
}

// close rejects later holds.
func (m *holdings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
}

// drop removes a hold and reports whether it was there. The caller must then release its lock.
func (m *holdings) drop(h *hold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropLocked(h)
}

// dropLocked is the variant of drop for callers who have mu.
func (m *holdings) dropLocked(h *hold) bool {
	if m.byOwner[h.owner] != h {
		return false
	}
	delete(m.byOwner, h.owner)
	delete(h.session.holds, h)
	return true
}

// free sends the call that releases the lock of a dropped hold and clears its row, in one
// transaction.
func (h *hold) free() *pipe.Call {
	s := h.session
	h.alone = h.mode == driver.Exclusive || s.shared.leave(h.key)
	if h.mode == driver.Shared {
		return s.Call(s.fn["leave"], h.key, h.owner, h.alone)
	}
	return s.Call(s.fn["free"], h.key, h.owner)
}

// release releases the lock of a dropped hold.
func (m *holdings) release(ctx context.Context, h *hold) error {
	c := h.free()
	if _, err := c.Wait(ctx); !c.Answered() {
		go func() { // ends when the server has answered or the connection has ended
			r, err := c.Result(context.Background())
			_ = m.released(h, r, err)
		}()
		return err
	}
	r, err := c.Result(context.Background()) // it is answered, perhaps at the moment ctx ended
	return m.released(h, r, err)
}

// released makes sure that the server has released the lock, and lets the next request of this
// process proceed.
func (m *holdings) released(h *hold, r pipe.Row, err error) error {
	defer m.ended(h)
	if h.alone && h.mode == driver.Shared {
		defer h.session.shared.left(h.key)
	}
	if err == nil && r.Text(0) == "t" {
		return nil
	}
	if h.alone {
		err = h.session.unlock(h.key, h.mode)
	} else if h.session.Err() == nil {
		err = nil // other holders of this process need the lock
	}
	if err == nil {
		go m.own.forget(h.session, h.key, h.owner) // ends when the row is gone, or with the session
	}
	return err
}

// ended returns what a hold used in this process.
func (m *holdings) ended(h *hold) {
	if h.session.waiter {
		m.waiters.put(h.session)
	}
	m.quota.leave()
	m.queues.change(h.key, func(t *localQueue) { t.leave(h.mode) })
}

// Renew renews leases; see [Engine.Renew].
func (m *holdings) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	groups, short := map[*session][]int{}, map[*session]*hold{}
	m.mu.Lock()
	now := time.Now()
	for i, l := range leases {
		h := m.lease(l)
		if h == nil || now.After(h.until) {
			errs[i] = notHeld(l.Name)
			continue
		}
		groups[h.session] = append(groups[h.session], i)
		if h.lease < h.ttl { // then it is the only hold on its session
			short[h.session] = h
		}
	}
	m.mu.Unlock()
	calls := make(map[*session]*pipe.Call, len(groups))
	for s := range groups {
		fn, args := s.beat(short[s])
		calls[s] = s.CallFirst(s.fn[fn], args...)
	}
	if len(groups) > 0 {
		m.own.listen()
	}
	for s, c := range calls {
		r, err := c.Result(ctx)
		if s.outdated(err); missing(err) {
			r, err = s.beatByName(ctx, short[s])
		}
		m.renewed(s.checkHeartbeat(r, err), s, leases, groups[s], errs)
	}
	return errs
}

// beat returns the call that renews every lease of the session and stores the time. With h it also
// extends the shortened lease of that hold to its full TTL.
func (s *session) beat(h *hold) (fn string, args []any) {
	now := time.Now().UnixMicro()
	if h == nil {
		return "beat", []any{s.id, now}
	}
	return "extend", []any{h.key, h.owner, h.ttl, s.id, now}
}

// beatByName repeats the heartbeat by function name, for a session whose functions were dropped and
// created again together with the schema.
func (s *session) beatByName(ctx context.Context, h *hold) (pipe.Row, error) {
	fn, args := s.beat(h)
	sql := "SELECT fencelock." + fn + "($1"
	for i := range args[1:] {
		sql += ", $" + strconv.Itoa(i+2)
	}
	rows, err := s.Query(sql+")", args...).Wait(ctx)
	if err != nil || len(rows) != 1 {
		return nil, err
	}
	return rows[0], nil
}

// checkHeartbeat checks the reply of a heartbeat.
func (s *session) checkHeartbeat(r pipe.Row, err error) error {
	if err == nil && int32(r.Int(0)) != s.backend {
		s.Kill(errMoved)
		return errMoved
	}
	return err
}

var errMoved = errors.New("a pooler moved the connection to another server process; " + inRows + ", or use session pooling")

// renewed applies the result of a heartbeat to the leases of one session.
func (m *holdings) renewed(err error, s *session, leases []driver.Lease, which []int, errs []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range which {
		switch h := m.lease(leases[i]); {
		case h == nil || s.Err() != nil:
			errs[i] = notHeld(leases[i].Name)
		case err != nil:
			errs[i] = failure(err)
		default:
			h.until, h.lease = time.Now().Add(h.ttl), h.ttl
		}
	}
}

// Release ends an acquisition; see [Engine.Release].
func (m *holdings) Release(ctx context.Context, lease driver.Lease) error {
	h := m.find(lease)
	if h == nil {
		return notHeld(lease.Name)
	}
	m.mu.Lock()
	over := time.Now().After(h.until) || h.session.Err() != nil
	m.mu.Unlock()
	if !m.drop(h) {
		return notHeld(lease.Name)
	}
	if over {
		go func() { _ = m.release(context.Background(), h) }() // ends when the server has answered or the connection has ended
		return notHeld(lease.Name)
	}
	err := m.own.dialer.within(ctx, func(ctx context.Context) error { return m.release(ctx, h) })
	if err != nil {
		if errors.Is(err, pipe.ErrEnded) || errors.Is(err, errSilent) || ctx.Err() != nil {
			err = fmt.Errorf("releasing %q: %w", lease.Name, err)
		}
		return failure(err)
	}
	return nil
}

// lose ends the holds on a session that has ended.
func (m *holdings) lose(s *session) {
	for _, h := range m.of(s) {
		if m.drop(h) {
			h.tell(fmt.Errorf("%w: %w", driver.ErrLost, s.Err()))
			m.ended(h)
		}
	}
}

// expire ends the holds on a session whose leases have expired.
func (m *holdings) expire(s *session, now time.Time) {
	for _, h := range m.lapsed(s, now) {
		h.tell(fmt.Errorf("%w: the lease was not renewed for %v", driver.ErrLost, h.ttl))
		go func() { _ = m.release(context.Background(), h) }() // ends when the server has answered or the connection has ended
	}
}

// lapsed drops and returns the holds of a session whose leases have expired.
func (m *holdings) lapsed(s *session, now time.Time) []*hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []*hold
	for h := range s.holds {
		if now.After(h.until) && m.dropLocked(h) {
			gone = append(gone, h)
		}
	}
	return gone
}

// notHeld returns the error for a lease that does not exist.
func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }
