package pglock

import (
	"context"
	"sync"
)

// lockQuota limits the locks of this process, including those being acquired, to a share of the
// server's lock table. A full lock table makes other statements and new connections fail.
type lockQuota struct {
	own *ownSession

	mu    sync.Mutex // guards all below
	used  int
	limit int // how many may be used before the server is queried again; 0 if it has not been queried
}

// enter counts a lock, and queries the server if necessary.
func (q *lockQuota) enter(ctx context.Context, s *session) error {
	q.mu.Lock()
	q.used++
	fits, used := q.used <= q.limit, q.used
	q.mu.Unlock()
	if fits {
		return nil
	}
	free, err := q.free(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	// Some of the counted locks are still being acquired, so the server does not count them yet.
	limit := s.slots * 6 / 10
	if err == nil {
		limit = min(limit, used-1+free-s.slots*4/10)
	}
	if err != nil || q.used > limit {
		q.used--
		if err != nil {
			return err
		}
		return deny("this process has %d locks, held or being acquired, and may not use more: the server has space for %d locks of all kinds, of which 40 %% are reserved for others; raise max_locks_per_transaction", used, s.slots)
	}
	q.limit = q.used + (limit-q.used)/4
	return nil
}

// leave uncounts a lock.
func (q *lockQuota) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used--
}

// free queries how many more locks the server has space for.
func (q *lockQuota) free(ctx context.Context) (int, error) {
	rows, err := q.own.ask(ctx, `SELECT current_setting('max_locks_per_transaction')::bigint *
	(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
	- (SELECT count(*) FROM pg_locks WHERE NOT fastpath)`)
	if err != nil {
		return 0, err
	}
	return int(rows[0].Int(0)), nil
}
