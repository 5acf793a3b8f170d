package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// tally collects the nodes' replies to one attempt.
type tally struct {
	set          *nodeSet
	name         string
	past         []string // the request's earlier owners, see attemptOptions
	nodeErrors   nodeErrors
	inWay        *driver.HeldError // if there are several, the one that stays longest
	otherHolders map[string]int    // by owner: on how many nodes it is in the way
	open         int               // nodes that have not answered; they may be held by anyone
	taken        bool              // a node answered that another request holds the name or is before this one
	first        bool              // only the leader was asked, and it refused
	waits        int               // nodes that answered that they do not vote yet
	gone         int               // nodes that do not have the lock to adopt
	next         time.Duration     // until the first of those in the way may be gone; 0 means unknown
}

// answer is the answer to a question that may not be decided yet.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// split reports whether the votes are split, so that nobody has a majority.
func (b *tally) split() answer {
	largest := 0
	for _, nodes := range b.otherHolders {
		largest = max(largest, nodes)
	}
	switch {
	case largest >= b.set.need:
		return no
	case largest+b.open >= b.set.need:
		return perhaps
	}
	return yes
}

// hasMajority reports whether a majority has answered.
func (b *tally) hasMajority() bool { return len(b.set.nodes)-b.open >= b.set.need }

// hopeless reports whether too many nodes have failed for a majority to answer.
func (b *tally) hopeless() bool { return len(b.nodeErrors.errs) > len(b.set.nodes)-b.set.need }

// vote parses a node's reply to ask: a word, the node's clock, the server's id, and values that
// depend on the word.
func (b *tally) vote(r reply) quorum.Vote {
	n := b.set.nodes[r.node]
	if r.Err != nil {
		b.nodeErrors.add(n, r.Err)
		return quorum.Vote{}
	}
	b.open--
	w := redisfmt.Words{Rest: r.Text}
	word := w.Next()
	if word == "nodes" {
		b.nodeErrors.wrong = fmt.Errorf("%w: %s works with another set of nodes; configure the same set in every client, and run fencelock init after changing it", driver.ErrConfig, n.label)
		b.nodeErrors.add(n, b.nodeErrors.wrong)
		return quorum.Vote{}
	}
	n.clock.showed(w.Int(), r.sent)
	server := serverOf(w.Next())
	switch word {
	case "granted": // it counts unless another node has the same server, which would vote twice
		v := quorum.Vote{Granted: true, Token: w.Int(), Floor: w.Int(), Server: server}
		if w.Bad {
			break
		}
		if err := b.set.recognise(n, server); err != nil {
			b.nodeErrors.add(n, err)
		}
		return v
	case "late": // later requests use the time that it reported
		b.nodeErrors.add(n, errors.New("the request arrived after its deadline"))
		return quorum.Vote{}
	case "held":
		if left, foreign := w.Millis(), w.Int() == 1; !w.Bad {
			b.noteHolder(n, left, foreign, w.Rest)
			return quorum.Vote{}
		}
	case "told": // the name is free, but reserved for requests that were notified
		b.taken = true
		b.later(w.Millis())
		return quorum.Vote{}
	case "gone":
		b.gone++
		b.taken = true
		return quorum.Vote{}
	case "quarantine":
		left := w.Millis()
		b.later(left)
		b.waits++
		b.nodeErrors.add(n, fmt.Errorf("it may have lost its data, and does not vote until %s", time.Now().Add(left).Format(time.RFC3339)))
		return quorum.Vote{}
	}
	b.nodeErrors.add(n, fmt.Errorf("unexpected reply of a lock script: %.100q", r.Text))
	return quorum.Vote{}
}

var errOwed = errors.New("it has not released an earlier attempt yet")

// noteHolder records who is in the way; if there are several, the one that stays longest. Attempts
// that this client is about to release do not count. A reply may be outdated and show an attempt
// that has been released since: that of another request is reported as a holder, as any client
// would, but never one of this request.
func (b *tally) noteHolder(n *node, left time.Duration, foreign bool, text string) {
	if h, ok := parseHolder(text); ok && !foreign && (slices.Contains(b.past, h.Owner) || n.orphans.has(h.Owner) && !n.holds.has(h.Owner)) {
		b.taken = true
		b.nodeErrors.add(n, errOwed)
		return
	}
	b.taken = true
	held := &driver.HeldError{Name: b.name}
	if left >= 0 {
		held.Until = time.Now().Add(left)
		b.later(left)
	}
	if h, ok := parseHolder(text); ok && !foreign {
		held.Owner, held.Identity, held.Since = h.Owner, h.Identity, h.Since
	} else {
		held.Owner = strings.TrimSpace(text)
	}
	if b.otherHolders == nil {
		b.otherHolders = map[string]int{}
	}
	b.otherHolders[held.Owner]++
	if b.inWay == nil || held.Until.After(b.inWay.Until) {
		b.inWay = held
	}
}

// later records until when time alone may change something. The earliest time counts.
func (b *tally) later(left time.Duration) {
	if b.next == 0 || left < b.next {
		b.next = max(left, time.Millisecond)
	}
}

// outcome is the outcome of an attempt.
type outcome struct {
	grant     driver.Grant
	owner     string // of the attempt
	won       bool
	inWay     *driver.HeldError
	split     bool          // nobody has a majority
	next      time.Duration // until time alone may change something; 0 means unknown
	contended bool          // a majority answered, and the name is taken on some of these nodes
	major     bool          // a majority answered
	later     bool          // and some of these nodes will vote after their quarantine
	err       error         // why no majority answered
	cut       bool          // because the caller's context ended first
	final     bool          // another attempt would also fail
	gone      bool          // no majority has the lock to adopt
}

// note records the outcome for the request's error.
func (o *outcome) note(ctx context.Context, waited *driver.Waited) {
	held, trouble := waited.Last()
	switch {
	case o.cut && (held != nil || trouble != nil): // nothing new was learnt
	case o.err != nil:
		waited.Unavailable(ctx, o.err)
	case !o.won && o.contended:
		waited.Held(o.inWay)
	}
}

// ended returns the error of a request that ends with this attempt.
func (o *outcome) ended(ctx context.Context, waited *driver.Waited) error {
	if o.cut {
		return waited.Ended(ctx, nil)
	}
	return waited.Ended(ctx, o.err)
}

// outcome returns the outcome of an attempt that did not win.
func (b *tally) outcome(ctx context.Context) outcome {
	o := outcome{inWay: b.inWay, next: b.next, split: b.split() == yes, major: b.hasMajority()}
	o.contended, o.later = o.major && b.taken, o.major && b.waits > 0
	o.gone = b.gone > len(b.set.nodes)-b.set.need
	if o.inWay == nil {
		o.inWay = &driver.HeldError{Name: b.name}
	}
	switch {
	case b.set.closed.Err() != nil:
		o.err, o.final = unavailable(errClosed), true
	case !o.contended && ctx.Err() != nil && b.nodeErrors.wrong == nil:
		o.cut = true
		if len(b.nodeErrors.errs) > 0 { // or the nodes are about to store the token
			o.err = b.nodeErrors.joined()
		}
	case b.nodeErrors.wrong != nil || b.hopeless():
		o.err, o.final = b.nodeErrors.joined(), b.nodeErrors.final()
	case !o.contended && !b.first:
		o.err = b.nodeErrors.joined()
	}
	return o
}
