package pglock

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// sweeper deletes the rows that ended sessions left behind. Nothing depends on it. It works on the
// engine's own session for as long as that session is open, so also in a process that is idle or
// never renews. It pauses between pages, because listings and breaks use the same session.
type sweeper struct {
	every time.Duration // between two passes; three times that after a pass that found nothing

	mu      sync.Mutex // guards all below
	next    time.Time  // when the next pass is due
	passing bool
}

// sweepTime is the usual time between two passes of an engine.
const sweepTime = time.Minute

// minSweepPause is the shortest pause between two pages.
const minSweepPause = 10 * time.Millisecond

// sweepIfDue starts a pass if it is time to.
func (w *sweeper) sweepIfDue(s *session, now time.Time) {
	w.mu.Lock()
	due := !now.Before(w.next) && !w.passing
	w.passing = w.passing || due
	w.mu.Unlock()
	if due {
		w.nextIn(3 * w.every)
		go func() { // ends with the pass, or with the session
			w.pass(s)
			w.mu.Lock()
			w.passing = false
			w.mu.Unlock()
		}()
	}
}

// nextIn schedules the next pass.
func (w *sweeper) nextIn(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Now().Add(d + retry.Jitter(d/4))
}

// pass goes through the tables, page by page, and is idle for three quarters of the time.
func (w *sweeper) pass(s *session) {
	for cursor := ""; ; {
		begun := time.Now()
		found, next, err := s.sweepPage(cursor)
		if found {
			w.nextIn(w.every)
		}
		pause := max(minSweepPause, 3*time.Since(begun))
		switch {
		case errors.Is(err, errCollision): // a pass that ended here might never come to the last tables
			pause = collisionPause + retry.Jitter(collisionPause)
		case err != nil || next == "":
			return // a later pass begins again
		}
		cursor = next
		retry.Nap(context.Background(), pause, s.Dead())
	}
}

// errCollision is returned while another client sweeps.
var errCollision = errors.New("another client sweeps")

// collisionPause is the shortest pause after a collision.
const collisionPause = 50 * time.Millisecond

// sweepPage examines one page of a table, and reports whether it found rows to delete. It returns
// the next cursor, "" at the end of the pass, and errCollision while another client sweeps.
func (s *session) sweepPage(cursor string) (found bool, next string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	if _, ok := s.fn["sweep_page"]; !ok { // earlier functions examine everything in one call
		_, err = s.Query("SELECT fencelock.sweep($1::integer, $2::bigint)", s.id, time.Now().UnixMicro()).Wait(ctx)
		return false, "", err
	}
	rows, err := s.Query("SELECT fencelock.sweep_page($1::integer, $2::bigint, $3::text)", s.id, time.Now().UnixMicro(), cursor).Wait(ctx)
	if err != nil || len(rows) != 1 {
		return false, "", err
	}
	if rows[0][0] == nil {
		return false, cursor, errCollision
	}
	n, rest, _ := bytes.Cut(rows[0][0], []byte("|"))
	deleted, _ := strconv.Atoi(string(n)) // the server writes integers
	return deleted > 0, string(rest), nil
}
