package pglock

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// sharedKeys counts the holders of a shared key on a session, and the requests in flight. The
// session has one lock for all of them; the last one releases it.
type sharedKeys struct {
	conn *pipe.Conn // of the session

	mu      sync.Mutex // guards all below
	count   map[int64]int
	leaving map[int64]chan struct{} // keys whose last holder is leaving; closed when the server has released the lock
}

// ask counts a request for a key, and reports whether the session has the key already. It first
// waits for a last holder that is leaving.
func (k *sharedKeys) ask(ctx context.Context, key int64) (have bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.settled(ctx, key); err != nil {
		return false, err
	}
	k.count[key]++
	return k.count[key] > 1, nil
}

// settled waits until no last holder is leaving a key. The caller has mu, which is released
// meanwhile.
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

// enter counts a holder.
func (k *sharedKeys) enter(key int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count[key]++
}

// quit uncounts a holder or a request, and reports whether it was the last one of its key.
func (k *sharedKeys) quit(key int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.drop(key)
}

// drop is the variant of quit for callers who have mu.
func (k *sharedKeys) drop(key int64) bool {
	if k.count[key]--; k.count[key] > 0 {
		return false
	}
	delete(k.count, key)
	return true
}

// leave is quit for a holder. If it is the last one, no request for the key is sent on the session
// until left is called. A release that fails may have unlocked the key already, and the unlock that
// makes sure would then take the lock away from such a request.
func (k *sharedKeys) leave(key int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.drop(key) {
		return false
	}
	k.leaving[key] = make(chan struct{})
	return true
}

// left reports that the server has released the lock of the last holder.
func (k *sharedKeys) left(key int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if gone := k.leaving[key]; gone != nil {
		delete(k.leaving, key)
		close(gone)
	}
}
