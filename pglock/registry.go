package pglock

import (
	"context"
	"sync"
	"time"
)

// noted is how far the note on a hold has come.
type noted int

const (
	unwritten noted = iota
	pending         // in the registry's queue
	flying          // on its way to the server
	written         // perhaps in the table: who lets go deletes it
)

const (
	noteDelay = 5 * time.Millisecond // locks held for less are never written down
	noteBatch = 1000
	noteLimit = 5 * time.Second
	sweepTime = time.Minute
)

// registry writes down who holds, off the path of acquire and release: a lock
// that is held only for a moment costs nothing. The notes tell people who holds,
// and keep a name closed until the lease is over when a session ends otherwise
// than by letting go, while its holder may still believe in the lock.
type registry struct {
	engine *Engine

	mu      sync.Mutex // guards queue, running, swept, and noted, withdrawn, flight of each hold
	queue   map[*hold]struct{}
	running bool
	swept   time.Time
}

var (
	stmtNote = &statement{"note", `WITH c AS MATERIALIZED (SELECT nextval('fencelock.change'))
INSERT INTO fencelock.holder
SELECT owner, key, name, token, shared, seats, to_timestamp(since / 1000.0), clock_timestamp() + ttl * interval '1 ms', ttl, session, host, pid, note
FROM json_to_recordset(CAST($1::text AS json)) AS x(owner text, key bigint, name text, token bigint, shared boolean, seats integer,
	since bigint, ttl bigint, session integer, host text, pid integer, note text), c
ON CONFLICT DO NOTHING`}
	stmtSweep = &statement{"sweep", `WITH dead AS (
	SELECT s.id FROM fencelock.session s
	WHERE s.until < clock_timestamp() - interval '1 minute' AND NOT EXISTS (
		SELECT FROM pg_stat_get_activity(s.backend) a WHERE a.backend_start = s.began)
), h AS (DELETE FROM fencelock.holder WHERE session IN (SELECT id FROM dead) OR session = 0 AND until < clock_timestamp() - interval '1 minute'
), w AS (DELETE FROM fencelock.waiter WHERE session IN (SELECT id FROM dead)
), m AS (DELETE FROM fencelock.minimum WHERE not_before < clock_timestamp() - interval '1 minute')
DELETE FROM fencelock.session WHERE id IN (SELECT id FROM dead)`}
)

// note queues a hold to be written down.
func (r *registry) note(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.noted == unwritten {
		h.noted = pending
		if r.queue == nil {
			r.queue = map[*hold]struct{}{}
		}
		r.queue[h] = struct{}{}
	}
	if !r.running {
		r.running = true
		time.AfterFunc(noteDelay, r.run) // ends when there is nothing left to write
	}
}

// withdraw takes the note on a hold back and says how far it has come. One that
// is in the table, or will be when flight is closed, must be deleted there.
func (r *registry) withdraw(h *hold) (n noted, flight <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.queue, h)
	h.withdrawn = true
	if h.noted == pending {
		h.noted = unwritten
	}
	return h.noted, h.flight
}

// run writes until there is nothing left to write.
func (r *registry) run() {
	for {
		batch, more := r.batch()
		if !more {
			return
		}
		pause := noteDelay
		if len(batch) > 0 {
			err := r.write(batch)
			r.landed(batch, err)
			if err != nil {
				pause = time.Second
			}
		}
		time.Sleep(pause)
	}
}

// batch takes holds that have lasted off the queue. An empty queue ends run.
func (r *registry) batch() (batch []*hold, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = len(r.queue) > 0
	now := time.Now()
	for h := range r.queue {
		if len(batch) == noteBatch {
			break
		}
		if now.Sub(h.since) < noteDelay {
			continue
		}
		delete(r.queue, h)
		h.noted, h.flight = flying, make(chan struct{})
		batch = append(batch, h)
	}
	return batch, r.running
}

// landed settles what became of a batch. One of unknown outcome is written again.
func (r *registry) landed(batch []*hold, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range batch {
		if !h.withdrawn {
			h.noted = written
		}
		if err != nil && !h.withdrawn {
			r.queue[h] = struct{}{}
		}
		close(h.flight)
	}
}

// write writes a batch.
func (r *registry) write(batch []*hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
	defer cancel()
	notes := make([]map[string]any, len(batch))
	for i, h := range batch {
		notes[i] = map[string]any{
			"owner": h.owner, "key": h.key, "name": h.name, "token": h.token, "shared": false, "seats": h.seats,
			"since": h.since.UnixMilli(), "ttl": h.ttl.Milliseconds(), "session": h.session.id,
			"host": h.Host, "pid": h.PID, "note": h.Note,
		}
	}
	_, err := r.engine.ask(ctx, stmtNote, object(notes))
	if err == nil {
		r.sweep()
	}
	return err
}

// sweep removes what the dead left behind, now and then.
func (r *registry) sweep() {
	r.mu.Lock()
	now := time.Now()
	due := now.Sub(r.swept) > sweepTime
	if due {
		r.swept = now
	}
	r.mu.Unlock()
	if due {
		ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
		defer cancel()
		_, _ = r.engine.ask(ctx, stmtSweep) // the next one will
	}
}
