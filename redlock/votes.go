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

// votes collects the nodes' replies to one attempt.
type votes struct {
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
func (v *votes) split() answer {
	largest := 0
	for _, nodes := range v.otherHolders {
		largest = max(largest, nodes)
	}
	switch {
	case largest >= v.set.need:
		return no
	case largest+v.open >= v.set.need:
		return perhaps
	}
	return yes
}

// hasMajority reports whether a majority has answered.
func (v *votes) hasMajority() bool { return len(v.set.nodes)-v.open >= v.set.need }

// hopeless reports whether too many nodes have failed for a majority to answer.
func (v *votes) hopeless() bool { return len(v.nodeErrors.errs) > len(v.set.nodes)-v.set.need }

// read parses a node's reply to ask: a word, the node's clock, the server's id, and values that
// depend on the word.
func (v *votes) read(r reply) quorum.Vote {
	n := v.set.nodes[r.node]
	if r.Err != nil {
		v.nodeErrors.add(n, r.Err)
		return quorum.Vote{}
	}
	v.open--
	w := redisfmt.Words{Rest: r.Text}
	word := w.Next()
	if word == "nodes" {
		v.nodeErrors.wrong = fmt.Errorf("%w: %s works with another set of nodes; configure the same set in every client, and run fencelock init after changing it", driver.ErrConfig, n.label)
		v.nodeErrors.add(n, v.nodeErrors.wrong)
		return quorum.Vote{}
	}
	n.clock.showed(w.Int(), r.sent)
	server := serverOf(w.Next())
	switch word {
	case "granted": // it counts unless another node has the same server, which would vote twice
		vote := quorum.Vote{Granted: true, Token: w.Int(), Floor: w.Int(), Server: server}
		if w.Bad {
			break
		}
		if err := v.set.recognise(n, server); err != nil {
			v.nodeErrors.add(n, err)
		}
		return vote
	case "late": // later requests use the time that it reported
		v.nodeErrors.add(n, errors.New("the request arrived after its deadline"))
		return quorum.Vote{}
	case "held":
		if left, foreign := w.Millis(), w.Int() == 1; !w.Bad {
			v.noteHolder(n, left, foreign, w.Rest)
			return quorum.Vote{}
		}
	case "told": // the name is free, but reserved for requests that were notified
		v.taken = true
		v.later(w.Millis())
		return quorum.Vote{}
	case "gone":
		v.gone++
		v.taken = true
		return quorum.Vote{}
	case "quarantine":
		left := w.Millis()
		v.later(left)
		v.waits++
		v.nodeErrors.add(n, fmt.Errorf("it may have lost its data, and does not vote until %s", time.Now().Add(left).Format(time.RFC3339)))
		return quorum.Vote{}
	}
	v.nodeErrors.add(n, fmt.Errorf("unexpected reply of a lock script: %.100q", r.Text))
	return quorum.Vote{}
}

var errOwed = errors.New("it has not released an earlier attempt yet")

// noteHolder records who is in the way; if there are several, the one that stays longest. Attempts
// that this client is about to release do not count. A reply may be outdated and show an attempt
// that has been released since: that of another request is reported as a holder, as any client
// would, but never one of this request.
func (v *votes) noteHolder(n *node, left time.Duration, foreign bool, text string) {
	if h, ok := parseHolder(text); ok && !foreign && (slices.Contains(v.past, h.Owner) || n.orphans.has(h.Owner) && !n.holds.has(h.Owner)) {
		v.taken = true
		v.nodeErrors.add(n, errOwed)
		return
	}
	v.taken = true
	held := &driver.HeldError{Name: v.name}
	if left >= 0 {
		held.Until = time.Now().Add(left)
		v.later(left)
	}
	if h, ok := parseHolder(text); ok && !foreign {
		held.Owner, held.Identity, held.Since = h.Owner, h.Identity, h.Since
	} else {
		held.Owner = strings.TrimSpace(text)
	}
	if v.otherHolders == nil {
		v.otherHolders = map[string]int{}
	}
	v.otherHolders[held.Owner]++
	if v.inWay == nil || held.Until.After(v.inWay.Until) {
		v.inWay = held
	}
}

// later records until when time alone may change something. The earliest time counts.
func (v *votes) later(left time.Duration) {
	if v.next == 0 || left < v.next {
		v.next = max(left, time.Millisecond)
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
func (v *votes) outcome(ctx context.Context) outcome {
	o := outcome{inWay: v.inWay, next: v.next, split: v.split() == yes, major: v.hasMajority()}
	o.contended, o.later = o.major && v.taken, o.major && v.waits > 0
	o.gone = v.gone > len(v.set.nodes)-v.set.need
	if o.inWay == nil {
		o.inWay = &driver.HeldError{Name: v.name}
	}
	switch {
	case v.set.closed.Err() != nil:
		o.err, o.final = unavailable(errClosed), true
	case !o.contended && ctx.Err() != nil && v.nodeErrors.wrong == nil:
		o.cut = true
		if len(v.nodeErrors.errs) > 0 { // or the nodes are about to store the token
			o.err = v.nodeErrors.joined()
		}
	case v.nodeErrors.wrong != nil || v.hopeless():
		o.err, o.final = v.nodeErrors.joined(), v.nodeErrors.final()
	case !o.contended && !v.first:
		o.err = v.nodeErrors.joined()
	}
	return o
}
