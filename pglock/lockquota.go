package pglock

import (
	"context"
	"sync"
)

// lockQuota limits the locks of this process, including those being acquired, to a share of the server's
// lock table. A full lock table makes other statements and new connections fail.
type lockQuota struct {
	own *ownSession

	mu    sync.Mutex // guards all below
	used  int
	limit int // how many may be used before the server is queried again; 0 if it has not been queried
}

// enter counts a lock, and queries the server if necessary.
func (r *lockQuota) enter(ctx context.Context, s *session) error {
	r.mu.Lock()
	r.used++
	fits, used := r.used <= r.limit, r.used
	r.mu.Unlock()
	if fits {
		return nil
	}
	free, err := r.free(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	// Some of the counted locks are still being acquired, so the server does not count them yet.
	limit := s.slots * 6 / 10
	if err == nil {
		limit = min(limit, used-1+free-s.slots*4/10)
	}
	if err != nil || r.used > limit {
		r.used--
		if err != nil {
			return err
		}
		return deny("this process has %d locks, held or being acquired, and may not use more: the server has space for %d locks of all kinds, of which 40 %% are reserved for others; raise max_locks_per_transaction", used, s.slots)
	}
	r.limit = r.used + (limit-r.used)/4
	return nil
}

// leave uncounts a lock.
func (r *lockQuota) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used--
}

// free queries how many more locks the server has space for.
func (r *lockQuota) free(ctx context.Context) (int, error) {
	rows, err := r.own.ask(ctx, `SELECT current_setting('max_locks_per_transaction')::bigint *
	(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
	- (SELECT count(*) FROM pg_locks WHERE NOT fastpath)`)
	if err != nil {
		return 0, err
	}
	return int(rows[0].Int(0)), nil
}
