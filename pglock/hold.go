package pglock

import (
	"context"
	"errors"
	"fmt"
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
	alone   bool // free gives the lock back, and not only this part of it; set by free

	// Guarded by holdings.mu.
	lease time.Duration // what the server knows of the TTL: less of a grant that ended a wait
	until time.Time     // when it ends unless renewed
}

// tell tells the holder that its lock is gone.
func (h *hold) tell(cause error) {
	if h.lost != nil {
		h.lost(cause)
	}
}

// holdings are the acquisitions of this process.
type holdings struct {
	mu      sync.Mutex // guards byOwner, and what session and hold say
	byOwner map[string]*hold
}

// find returns the hold of a lease, nil if it does not stand.
func (m *holdings) find(l driver.Lease) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease(l)
}

// lease is find for callers who have mu.
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

// add makes granted requests holds, unless their session has ended meanwhile or begin,
// which gives them the turns of this process, says no.
func (m *holdings) add(begin func() bool, holds ...*hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := holds[0].session.Err(); err != nil {
		return err // who ends its holds may have been there before
	}
	if !begin() {
		return errBroken
	}
	for _, h := range holds {
		m.byOwner[h.owner] = h
		h.session.holds[h] = struct{}{}
		if h.mode == driver.Shared {
			h.session.keys[h.key]++
		}
	}
	return nil
}

// errBroken is why a grant comes to nothing whose token is older than a break that was
// heard of before it came; the request asks once more.
var errBroken = errors.New("the lock was broken just when it was granted")

// drop forgets a hold, whose lock is then the caller's to free. It reports whether it was
// there.
func (m *holdings) drop(h *hold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropLocked(h)
}

func (m *holdings) dropLocked(h *hold) bool {
	if m.byOwner[h.owner] != h {
		return false
	}
	delete(m.byOwner, h.owner)
	delete(h.session.holds, h)
	return true
}

// overdue drops and returns the holds of a session that nobody renewed in time.
func (m *holdings) overdue(s *session, now time.Time) []*hold {
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

// shares reports whether a session holds key for a shared holder already. It waits while the
// last one leaves.
func (m *holdings) shares(ctx context.Context, s *session, key int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.settled(ctx, s, key)
	return s.keys[key] > 0, err
}

// share counts a request for a shared key in, and reports whether the session has it already.
// It waits while the last holder of before leaves.
func (m *holdings) share(ctx context.Context, s *session, key int64) (have bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.settled(ctx, s, key); err != nil {
		return false, err
	}
	s.keys[key]++
	return s.keys[key] > 1, nil
}

// settled waits until nobody leaves a shared key on a session. The caller has mu, which is
// free while it waits.
func (m *holdings) settled(ctx context.Context, s *session, key int64) error {
	for s.leaving[key] != nil {
		left := s.leaving[key]
		m.mu.Unlock()
		var err error
		select {
		case <-left:
		case <-s.Dead():
			err = s.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		m.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// last counts a shared holder or request out, and reports whether the session has no other of
// its key.
func (m *holdings) last(s *session, key int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.keys[key]--; s.keys[key] > 0 {
		return false
	}
	delete(s.keys, key)
	return true
}

// part is last for a holder. If it is the last one, no request for the key is sent on the
// session until parted is called: a release that fails may have unlocked before, and the unlock
// that makes sure would take away what such a request has got.
func (m *holdings) part(s *session, key int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.keys[key]--; s.keys[key] > 0 {
		return false
	}
	delete(s.keys, key)
	s.leaving[key] = make(chan struct{})
	return true
}

// parted says that the server has no lock for holders that have left.
func (m *holdings) parted(s *session, key int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := s.leaving[key]; left != nil {
		delete(s.leaving, key)
		close(left)
	}
}

// free sends what frees the lock of a dropped hold, and says in the same transaction
// that nobody holds it any more.
func (h *hold) free() *pipe.Call {
	s := h.session
	h.alone = h.mode == driver.Exclusive || s.engine.holds.part(s, h.key)
	if h.mode == driver.Shared {
		return s.Call(s.fn["leave"], h.key, h.owner, h.alone)
	}
	return s.Call(s.fn["free"], h.key, h.owner)
}

// release frees the lock of a dropped hold.
func (e *Engine) release(ctx context.Context, h *hold) error {
	c := h.free()
	r, err := c.Result(ctx)
	if err != nil && c.Answered() {
		r, err = c.Result(context.Background()) // it may have come in the same instant
	}
	if err != nil && !c.Answered() {
		go func() { // ends when the server has answered or the connection has ended
			r, err := c.Result(context.Background())
			_ = e.released(h, r, err)
		}()
		return err
	}
	return e.released(h, r, err)
}

// released makes sure that the server has let go, and lets the next request of this process
// at the lock.
func (e *Engine) released(h *hold, r pipe.Row, err error) error {
	defer e.ended(h)
	if h.alone && h.mode == driver.Shared {
		defer e.holds.parted(h.session, h.key)
	}
	if err == nil && r.Text(0) == "t" {
		return nil
	}
	if h.alone {
		err = h.session.unlock(h.key, h.mode)
	} else if h.session.Err() == nil {
		err = nil // others of this process need the lock
	}
	if err == nil {
		go e.forget(h.key, h.owner) // ends within askLimit
	}
	return err
}

// ended ends what is left of a hold in this process.
func (e *Engine) ended(h *hold) {
	if h.session.waiter {
		e.waiters.put(h.session)
	}
	e.room.leave(1)
	e.turns.change(h.key, func(t *turn) { t.leave(h.mode) })
}

// askLimit bounds questions that nobody waits for.
const askLimit = 5 * time.Second

// forget frees the row of an owner whose lock was given back without it, or the row would
// close the name for a TTL, or take a seat for as long as its session lives.
func (e *Engine) forget(key int64, owner string) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	_, _ = e.ask(ctx, forgetSQL, key, owner) // a failure costs others the TTL
}

const forgetSQL = `WITH s AS (DELETE FROM fencelock.sharer WHERE key = $1::bigint AND owner = $2::text)
UPDATE fencelock.held SET owner = NULL WHERE key = $1::bigint AND owner = $2::text`

// Renew extends acquisitions to a full TTL from now, with one statement for each
// connection they live on. One whose connection has ended, that was broken or
// that nobody renewed in time is driver.ErrNotHeld.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	groups, short := map[*session][]int{}, map[*session]*hold{}
	e.holds.mu.Lock()
	now := time.Now()
	for i, l := range leases {
		h := e.holds.lease(l)
		if h == nil || now.After(h.until) {
			errs[i] = notHeld(l.Name)
			continue
		}
		groups[h.session] = append(groups[h.session], i)
		if h.lease < h.ttl { // it is alone on its session
			short[h.session] = h
		}
	}
	e.holds.mu.Unlock()
	calls := make(map[*session]*pipe.Call, len(groups))
	for s := range groups {
		if h := short[s]; h != nil {
			calls[s] = s.Call(s.fn["confirm"], h.key, h.owner, h.ttl)
		} else {
			calls[s] = s.beat()
		}
	}
	if len(groups) > 0 {
		e.listen()
		e.sweepSoon()
	}
	for s, c := range calls {
		r, err := c.Result(ctx)
		e.renewed(s.checkHeartbeat(r, err), s, leases, groups[s], errs)
	}
	return errs
}

// renewed notes what a heartbeat means for the leases of one session.
func (e *Engine) renewed(err error, s *session, leases []driver.Lease, which []int, errs []error) {
	e.holds.mu.Lock()
	defer e.holds.mu.Unlock()
	for _, i := range which {
		switch h := e.holds.lease(leases[i]); {
		case h == nil || s.Err() != nil:
			errs[i] = notHeld(leases[i].Name)
		case err != nil:
			errs[i] = failure(err)
		default:
			h.until, h.lease = time.Now().Add(h.ttl), h.ttl
		}
	}
}

// Release ends an acquisition, and lets the next one in. When it returns nil the
// server has let go.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	h := e.holds.find(lease)
	if h == nil {
		return notHeld(lease.Name)
	}
	e.holds.mu.Lock()
	over := time.Now().After(h.until) || h.session.Err() != nil
	e.holds.mu.Unlock()
	if !e.holds.drop(h) {
		return notHeld(lease.Name)
	}
	if over {
		go func() { _ = e.release(context.Background(), h) }() // ends when the server has answered or the connection has ended
		return notHeld(lease.Name)
	}
	if err := e.release(ctx, h); err != nil {
		if errors.Is(err, pipe.ErrEnded) || ctx.Err() != nil {
			err = fmt.Errorf("releasing %q: %w", lease.Name, err)
		}
		return failure(err)
	}
	return nil
}

func notHeld(name string) error { return fmt.Errorf("%w: %q", driver.ErrNotHeld, name) }
