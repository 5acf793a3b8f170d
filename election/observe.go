package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// Leader is who leads. The zero Leader means that nobody does.
type Leader struct {
	Value string // what the leader publishes
	Host  string
	PID   int
	Owner string    // never empty while somebody leads
	Term  int64     // the number of the term
	Since time.Time // when it began, by the engine's clock
}

// same reports whether l and o are one leader, as far as anybody cares.
func (l Leader) same(o Leader) bool {
	return l.Owner == o.Owner && l.Term == o.Term && l.Value == o.Value
}

// Current asks once who leads name. The answer may be out of date when it
// arrives. A holder without an owner is no leader: another program, or on PostgreSQL
// a leader that is just coming or going. fencelock.ErrUnsupported if the engine cannot
// list its locks. What a leader has published by [Term.Publish] stands in the engine's records:
// if these may not be read, it is fencelock.ErrConfig.
func Current(ctx context.Context, locks *fencelock.Locker, name string) (Leader, error) {
	var leader Leader
	for range 2 { // the second time a later leader has published meanwhile
		var err error
		if leader, err = holder(ctx, locks, name); err != nil || leader.Owner == "" {
			return leader, err
		}
		p, err := lastPublished(ctx, locks, name)
		if err != nil {
			return Leader{}, err
		}
		if p.Term == leader.Term {
			leader.Value = p.Value
		}
		if p.Term <= leader.Term {
			break
		}
	}
	return leader, nil
}

// holder is Current with the value that the leader published when it asked for the name.
func holder(ctx context.Context, locks *fencelock.Locker, name string) (Leader, error) {
	status, err := locks.Status(ctx, name)
	if err == nil && len(status.Holders) == 0 && status.Trouble != nil { // perhaps somebody leads unseen
		return Leader{}, fmt.Errorf("%w: the leader of %q cannot be seen: %w", fencelock.ErrUnavailable, name, status.Trouble)
	}
	if err != nil || len(status.Holders) == 0 || status.Holders[0].Owner == "" {
		return Leader{}, err
	}
	h := status.Holders[0]
	return Leader{Value: h.Note, Host: h.Host, PID: h.PID, Owner: h.Owner, Term: h.Token, Since: h.Since}, nil
}

// Depose takes the name away from the leader that leads now, and from no other: a
// successor that has come meanwhile keeps it. The leader hears of it at once if it can be
// reached; its term ends as lost, while the next one in the queue leads already, and it
// campaigns again behind those who wait. Depose returns who that was, with the value that it
// began its term with, and a token that shuts it out of guarded resources. fencelock.ErrNotHeld if nobody leads or that leader has just
// gone, fencelock.ErrUnsupported if the engine cannot do it.
//
// A leader that goes by itself calls [Candidate.Resign], which waits for the work.
func Depose(ctx context.Context, locks *fencelock.Locker, name, reason string) (Leader, int64, error) {
	leader, err := holder(ctx, locks, name) // also for an operator who may not read records
	if err != nil {
		return Leader{}, 0, err
	}
	if leader.Owner == "" {
		return Leader{}, 0, fmt.Errorf("%w: nobody leads %q", fencelock.ErrNotHeld, name)
	}
	token, err := locks.BreakOwner(ctx, name, leader.Owner, reason)
	return leader, token, err
}

const (
	lookSoon = time.Second      // after a change: an engine may tell the value late
	lookNext = 5 * time.Second  // otherwise: an event may have been missed
	patience = 30 * time.Second // how long the engine may be out of reach
)

// Observe yields who leads name, now and after every change; the zero Leader when
// nobody does. Leaders that come and go faster than the loop's body may be passed
// over. An error is the last thing yielded: ctx's, or that of an engine that
// cannot be asked: at once if it never could be, otherwise 30 s after it was first asked in
// vain. One that is silent is given up then, too. An observer that stood still in between asks
// before it gives up.
func Observe(ctx context.Context, locks *fencelock.Locker, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		news := follow(ctx, locks, name)
		var last Leader
		asked, known := time.Now(), false // asked is when the first question was that has no answer
		for {
			next := lookSoon
			leader, err := ask(ctx, locks, name, asked.Add(patience))
			switch {
			case ctx.Err() != nil:
				yield(Leader{}, context.Cause(ctx))
				return
			case errors.Is(err, fencelock.ErrUnavailable) && known && time.Since(asked) < patience:
				next = min(next, time.Until(asked.Add(patience)))
			case err != nil:
				yield(Leader{}, err)
				return
			case !known || !leader.same(last):
				if !yield(leader, nil) {
					return
				}
			default:
				next = lookNext
			}
			retry.Nap(ctx, next, news)
			if err == nil {
				last, asked, known = leader, time.Now(), true
			}
		}
	}
}

// ask is Current with a limit. An engine that does not answer by then is unavailable.
func ask(ctx context.Context, locks *fencelock.Locker, name string, limit time.Time) (Leader, error) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	leader, err := Current(ctx, locks, name)
	if err != nil && ctx.Err() != nil && !errors.Is(err, fencelock.ErrUnavailable) {
		err = fmt.Errorf("%w: no answer: %w", fencelock.ErrUnavailable, err)
	}
	return leader, err
}

// follow returns a channel that is told when something happened to name.
func follow(ctx context.Context, locks *fencelock.Locker, name string) <-chan struct{} {
	news := make(chan struct{}, 1)
	go func() { // ends when ctx ends
		for ctx.Err() == nil {
			for _, err := range locks.WatchName(ctx, name) {
				if err != nil {
					break
				}
				select {
				case news <- struct{}{}:
				default:
				}
			}
			retry.Sleep(ctx, lookSoon)
		}
	}()
	return news
}
