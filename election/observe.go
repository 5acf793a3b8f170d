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

// Leader describes the current leader. The zero Leader means that there is none.
type Leader struct {
	Value string // what the leader publishes
	Rank  int    // see Config.Rank
	Host  string
	PID   int
	Owner string    // not empty while there is a leader
	Term  int64     // the number of the term
	Since time.Time // when the term began, by the engine's clock
}

// same reports whether l and o are the same for an observer.
func (l Leader) same(o Leader) bool {
	return l.Owner == o.Owner && l.Term == o.Term && l.Value == o.Value
}

// Current returns the current leader of name. The answer may be out of date when it arrives. It
// ignores a holder without an owner: that is another program or, on PostgreSQL, a leader that is
// just starting or stopping. Current returns fencelock.ErrUnsupported if the engine cannot list its
// locks. Values of [Term.Publish] are in the engine's records; if the caller may not read them,
// Current returns fencelock.ErrConfig.
func Current(ctx context.Context, locks *fencelock.Locker, name string) (Leader, error) {
	var leader Leader
	for range 2 { // retry once if a later leader has published in the meantime
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

// holder is Current with the value from the start of the term.
func holder(ctx context.Context, locks *fencelock.Locker, name string) (Leader, error) {
	status, err := locks.Status(ctx, name)
	if err == nil && len(status.Holders) == 0 && status.Trouble != nil { // there may be a leader that the engine cannot see
		return Leader{}, fmt.Errorf("%w: the leader of %q cannot be determined: %w", fencelock.ErrUnavailable, name, status.Trouble)
	}
	if err != nil || len(status.Holders) == 0 || status.Holders[0].Owner == "" {
		return Leader{}, err
	}
	return leaderOf(status.Holders[0]), nil
}

// leaderOf returns a holder as a leader. One that only asks for another leader is none.
func leaderOf(h fencelock.Holder) Leader {
	value, rank, to := readNote(h.Note)
	if to != "" {
		return Leader{}
	}
	return Leader{Value: value, Rank: rank, Host: h.Host, PID: h.PID, Owner: h.Owner, Term: h.Token, Since: h.Since}
}

// Depose takes the lock away from the current leader, and from no later one. The leader is notified
// at once if it is reachable. Its term ends as lost, while the next candidate in the queue already
// leads, and it campaigns again at the end of the queue.
//
// Depose returns the deposed leader, with the value from the start of its term, and a token with
// which guarded resources refuse its writes. It returns fencelock.ErrNotHeld if there is no leader
// or it has just stopped, and fencelock.ErrUnsupported if the engine cannot break single
// acquisitions.
//
// To let a leader finish its work first, call [Candidate.Resign] in its process instead.
func Depose(ctx context.Context, locks *fencelock.Locker, name, reason string) (Leader, int64, error) {
	leader, err := holder(ctx, locks, name) // not Current: an operator may lack the right to read records
	if err != nil {
		return Leader{}, 0, err
	}
	return depose(ctx, locks, name, leader, reason)
}

// depose ends the term of a leader, and of no other one.
func depose(ctx context.Context, locks *fencelock.Locker, name string, leader Leader, reason string) (Leader, int64, error) {
	if leader.Owner == "" {
		return Leader{}, 0, fmt.Errorf("%w: nobody leads %q", fencelock.ErrNotHeld, name)
	}
	token, err := locks.BreakOwner(ctx, name, leader.Owner, reason)
	return leader, token, err
}

const (
	pollSoon  = time.Second      // after a change: some engines report the value late
	pollLater = 5 * time.Second  // otherwise: a notification may have been missed
	patience  = 30 * time.Second // how long the engine may be unreachable
)

// Observe yields the leader of name, now and after every change. It yields the zero Leader when
// there is none. Leaders that change faster than the body of the loop runs may be skipped.
//
// The last element is an error: that of ctx, or that of the engine. If the engine was never
// reachable, Observe yields its error at once, otherwise after it was unreachable for 30 s. A
// process that was paused tries once more before it gives up.
func Observe(ctx context.Context, locks *fencelock.Locker, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		news := follow(ctx, locks, name)
		var last Leader
		asked, known := time.Now(), false // asked is when the first unanswered request was sent
		for {
			next := pollSoon
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
				next = pollLater
			}
			retry.Nap(ctx, next, news)
			if err == nil {
				last, asked, known = leader, time.Now(), true
			}
		}
	}
}

// ask is Current with a deadline. No answer by then is ErrUnavailable.
func ask(ctx context.Context, locks *fencelock.Locker, name string, limit time.Time) (Leader, error) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	leader, err := Current(ctx, locks, name)
	if err != nil && ctx.Err() != nil && !errors.Is(err, fencelock.ErrUnavailable) {
		err = fmt.Errorf("%w: no answer: %w", fencelock.ErrUnavailable, err)
	}
	return leader, err
}

// follow returns a channel that receives a value after a change of name.
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
			retry.Sleep(ctx, pollSoon)
		}
	}()
	return news
}
