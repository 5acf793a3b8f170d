package pglock

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// sharedKeys counts who shares a key on a session: holders, and requests under way. The session
// has one lock for all of them, which the last one gives back.
type sharedKeys struct {
	conn *pipe.Conn // of the session

	mu      sync.Mutex // guards all below
	count   map[int64]int
	leaving map[int64]chan struct{} // keys whose last holder leaves; closed when the server has let go
}

// ask counts a request for a key in, and reports whether the session has it already.
// It waits while the last holder of before leaves.
func (k *sharedKeys) ask(ctx context.Context, key int64) (have bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.settled(ctx, key); err != nil {
		return false, err
	}
	k.count[key]++
	return k.count[key] > 1, nil
}

// settled waits until nobody leaves a key. The caller has mu, which is free while it waits.
func (k *sharedKeys) settled(ctx context.Context, key int64) error {
	for k.leaving[key] != nil {
		left := k.leaving[key]
		k.mu.Unlock()
		var err error
		select {
		case <-left:
		case <-k.conn.Dead():
			err = k.conn.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		k.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// enter counts a holder in.
func (k *sharedKeys) enter(key int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count[key]++
}

// quit counts a holder or a request out, and reports whether the session has no other of its key.
func (k *sharedKeys) quit(key int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.drop(key)
}

// drop is quit for callers who have mu.
func (k *sharedKeys) drop(key int64) bool {
	if k.count[key]--; k.count[key] > 0 {
		return false
	}
	delete(k.count, key)
	return true
}

// leave is quit for a holder. If it is the last one, no request for the key is sent on the
// session until left is called: a release that fails may have unlocked before, and the unlock
// that makes sure would take away what such a request has got.
func (k *sharedKeys) leave(key int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.drop(key) {
		return false
	}
	k.leaving[key] = make(chan struct{})
	return true
}

// left says that the server has no lock for holders that have left.
func (k *sharedKeys) left(key int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if gone := k.leaving[key]; gone != nil {
		delete(k.leaving, key)
		close(gone)
	}
}
