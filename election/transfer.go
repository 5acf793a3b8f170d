package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// ErrNoCandidate means that no candidate waits on the host that was given to [Transfer].
var ErrNoCandidate = errors.New("no candidate waits there")

// Transfer deposes the leader as [Depose] does, and lets a candidate on host lead next. The others
// give way to it if they are granted the lock first, without running their work. That leader does
// not resign to a candidate of a better rank during this term.
//
// If another candidate has led for three seconds nevertheless, and one on host still waits, Transfer
// deposes that leader, too, but at most three leaders in all. On Redlock, a request is not always
// listed, so that candidate may not have noticed what is asked for.
//
// Transfer returns when a candidate on host has led for three seconds, or an error when ctx ends
// before. If host leads already, or leads next because the leader has resigned by itself, it deposes
// nobody and returns the leader on host and the number of its term. If no candidate waits on host, it
// deposes nobody and returns ErrNoCandidate.
//
// Transfer waits in the queue itself, with a note that names the host: this is how the candidates
// know. So it needs the right to acquire the lock.
func Transfer(ctx context.Context, locks *fencelock.Locker, name, host, reason string) (Leader, int64, error) {
	status, err := locks.Status(ctx, name)
	if err != nil {
		return Leader{}, 0, err
	}
	if len(status.Holders) > 0 {
		if leader := leaderOf(status.Holders[0]); leader.Host == host {
			return leader, leader.Term, nil
		}
	}
	if !waitsOn(status, host) {
		return Leader{}, 0, fmt.Errorf("%w: %q has none on %q", ErrNoCandidate, name, host)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	queued, done := make(chan struct{}), make(chan struct{})
	go func() { // ends when ctx ends
		defer close(done)
		cancel(wish(ctx, locks, name, host, queued))
	}()
	defer func() {
		cancel(nil)
		<-done // the request has left the queue
	}()
	select {
	case <-queued:
	case <-ctx.Done():
		return Leader{}, 0, context.Cause(ctx)
	}
	leader, token, err := deposeElsewhere(ctx, locks, name, host, reason)
	if err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
		return leader, token, err
	}
	next, failed := awaitLeader(ctx, locks, name, host, reason)
	if err != nil { // the leader has resigned meanwhile, and nobody was deposed
		leader, token = next, next.Term
	}
	return leader, token, failed
}

// waitsOn reports whether a candidate on host waits.
func waitsOn(s fencelock.Status, host string) bool {
	return slices.ContainsFunc(s.Waiters, func(w fencelock.Waiter) bool {
		return w.Host == host && w.Kind == fencelock.KindElection
	})
}

// deposeElsewhere is Depose, unless the leader is now on host.
func deposeElsewhere(ctx context.Context, locks *fencelock.Locker, name, host, reason string) (Leader, int64, error) {
	leader, err := holder(ctx, locks, name)
	switch {
	case err != nil:
		return Leader{}, 0, err
	case leader.Host == host:
		return leader, leader.Term, nil
	}
	return depose(ctx, locks, name, leader, reason) // which may have ended since: its successor may be on host
}

// wishTTL is the TTL of a request that is released as soon as it is granted. It is short, since an
// engine may have a maximum.
const wishTTL = time.Second

// wish waits in the queue, with a note that asks for a leader on host. It closes queued when it is
// there, and waits again after a grant, until ctx ends.
func wish(ctx context.Context, locks *fencelock.Locker, name, host string, queued chan struct{}) error {
	once := sync.OnceFunc(func() { close(queued) })
	locks = locks.WithOnly(fencelock.Options{
		TTL: wishTTL, Note: wishNote(host), Kind: fencelock.KindElection,
		OnWait: func(fencelock.WaitInfo) { once() },
	})
	for {
		lock, err := locks.Acquire(ctx, name)
		if err != nil {
			return err
		}
		if err := lock.Release(); err != nil && !errors.Is(err, fencelock.ErrNotHeld) {
			return err
		}
		once()
		retry.Sleep(ctx, firstLook)
	}
}

// The pauses between two looks at who leads.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// steady is how long the new leader of a transfer must lead. An engine may show a frozen candidate
// as the leader for two seconds.
const steady = 3 * time.Second

// deposedAgain is how many leaders a transfer deposes after the first one.
const deposedAgain = 2

// awaitLeader waits until a candidate on host leads and has done so for a while, and returns it. Other
// leaders are deposed, as long as a candidate on host waits.
func awaitLeader(ctx context.Context, locks *fencelock.Locker, name, host, reason string) (Leader, error) {
	var last Leader
	var since time.Time
	again := deposedAgain
	for pause := retry.NewBackoff(firstLook, lastLook); ; {
		leader, err := holder(ctx, locks, name)
		switch {
		case err != nil:
		case leader.Owner != last.Owner:
			last, since = leader, time.Now()
		case leader.Owner == "" || time.Since(since) < steady:
		case leader.Host == host:
			return leader, nil
		case again > 0:
			if status, err := locks.Status(ctx, name); err != nil || !waitsOn(status, host) {
				break
			}
			_, _, err = deposeElsewhere(ctx, locks, name, host, reason)
			if !errors.Is(err, fencelock.ErrNotHeld) { // otherwise it has deposed nobody
				again--
			}
			since = time.Now()
		}
		if !pause.Wait(ctx) {
			return Leader{}, fmt.Errorf("%w: the leader of %q is now on %q, not on %q", context.Cause(ctx), name, last.Host, host)
		}
	}
}
