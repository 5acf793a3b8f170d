package pglock

import (
	"context"
	"sync"
)

// room counts the locks of this process, and of requests under way, against what the
// server has room for: a full lock table fails other statements, and new connections
// too.
type room struct {
	own *ownSession

	mu   sync.Mutex // guards all below
	used int
	most int // how many may be used before the server is asked again; 0 means it was not yet
}

// enter takes the room of a lock, asking the server if it is time to.
func (r *room) enter(ctx context.Context, s *session) error {
	r.mu.Lock()
	r.used++
	fits, used := r.used <= r.most, r.used
	r.mu.Unlock()
	if fits {
		return nil
	}
	free, err := r.free(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	// What is counted as used here is partly under way, and not yet in the server's table.
	limit := s.slots * 6 / 10
	if err == nil {
		limit = min(limit, used-1+free-s.slots*4/10)
	}
	if err != nil || r.used > limit {
		r.used--
		if err != nil {
			return err
		}
		return deny("this process holds or asks for %d locks, and the server has room for %d of all kinds, of which four tenths are left for others; raise max_locks_per_transaction", used, s.slots)
	}
	r.most = r.used + (limit-r.used)/4
	return nil
}

// leave gives the room of a lock back.
func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used--
}

// free asks how many locks the server has room for besides those that there are.
func (r *room) free(ctx context.Context) (int, error) {
	rows, err := r.own.ask(ctx, `SELECT current_setting('max_locks_per_transaction')::bigint *
	(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
	- (SELECT count(*) FROM pg_locks WHERE NOT fastpath)`)
	if err != nil {
		return 0, err
	}
	return int(rows[0].Int(0)), nil
}
