package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/words"
)

// tally is what the nodes answered to one attempt.
type tally struct {
	engine       *Engine
	name         string
	past         []string // see attemptOptions
	causes       causes
	inWay        *driver.HeldError
	otherHolders map[string]int // on how many nodes somebody is in the way
	open         int            // nodes whom nobody is known to have: all but those that answered
	first        bool           // only the node that goes first was asked, and it refused
	waits        int            // nodes that answered that they do not vote yet
	next         time.Duration
}

// answer is one to a question that may be too early to tell.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// split tells whether votes are split, so that nobody has a majority.
func (b *tally) split() answer {
	most := 0
	for _, nodes := range b.otherHolders {
		most = max(most, nodes)
	}
	switch {
	case most >= b.engine.need:
		return no
	case most+b.open >= b.engine.need:
		return perhaps
	}
	return yes
}

// heard reports whether a majority has answered at all.
func (b *tally) heard() bool { return len(b.engine.nodes)-b.open >= b.engine.need }

// unclear reports whether it cannot be told yet if a majority answers. A take
// can be lost before that: a node that is down refuses it like one that is held.
func (b *tally) unclear() bool {
	return !b.heard() && len(b.causes.errs) <= len(b.engine.nodes)-b.engine.need
}

// vote reads a node's answer to ask.
func (b *tally) vote(r reply) quorum.Vote {
	n := b.engine.nodes[r.node]
	if r.Err == nil {
		b.open--
	}
	if r.Err != nil {
		b.causes.add(n, r.Err)
		return quorum.Vote{}
	}
	w := words.Words{Rest: r.Text}
	word := w.Next()
	if word == "nodes" {
		b.causes.wrong = fmt.Errorf("%w: %s works with another set of nodes; give every client the same set, and run fencelock init when it has changed", driver.ErrConfig, n.label)
		b.causes.add(n, b.causes.wrong)
		return quorum.Vote{}
	}
	n.showed(w.Int(), r.sent)
	server := serverOf(w.Next())
	switch word {
	case "granted":
		v := quorum.Vote{Granted: true, Token: w.Int(), Floor: w.Int(), Server: server}
		if w.Bad {
			break
		}
		if err := n.recognise(server); err != nil {
			b.causes.add(n, err)
		}
		return v
	case "late":
		b.causes.add(n, errors.New("the request came too late"))
		return quorum.Vote{}
	case "held":
		if left, foreign := w.Millis(), w.Int() == 1; !w.Bad {
			b.seen(n, left, foreign, w.Rest)
			return quorum.Vote{}
		}
	case "told": // the name is free, and kept for those who were told so
		b.wait(w.Millis())
		return quorum.Vote{}
	case "quarantine":
		left := w.Millis()
		b.wait(left)
		b.waits++
		b.causes.add(n, fmt.Errorf("it may have forgotten its locks and does not vote until %s", time.Now().Add(left).Format(time.RFC3339)))
		return quorum.Vote{}
	}
	b.causes.add(n, fmt.Errorf("unexpected answer %.100q", r.Text))
	return quorum.Vote{}
}

// serverOf reads the name that a node gives itself; 0 means unknown.
func serverOf(text string) uint64 {
	server, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}
	return server
}

var errOwed = errors.New("it has yet to give back what an earlier attempt got")

// seen notes who is in the way; of several, the one that stays longest. What this
// client is about to give back is in nobody's way for long. An answer may show what has
// been given back since: that of another request is told as held, as any client would
// tell it, that of this request never.
func (b *tally) seen(n *node, left time.Duration, foreign bool, text string) {
	if h, ok := parseHolder(text); ok && !foreign && (slices.Contains(b.past, h.Owner) || n.owes(h.Owner)) {
		b.causes.add(n, errOwed)
		return
	}
	held := &driver.HeldError{Name: b.name}
	if left >= 0 {
		held.Until = time.Now().Add(left)
		b.wait(left)
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

func (b *tally) wait(left time.Duration) {
	if b.next == 0 || left < b.next {
		b.next = max(left, time.Millisecond)
	}
}

// outcome is that of an attempt which did not win.
func (b *tally) outcome(ctx context.Context) outcome {
	o := outcome{inWay: b.inWay, next: b.next, split: b.split() == yes, heard: b.heard(), later: b.waits > 0 && b.heard()}
	if o.inWay == nil {
		o.inWay = &driver.HeldError{Name: b.name}
	}
	switch {
	case b.engine.closed.Err() != nil:
		o.err, o.final = unavailable(errClosed), true
	case !o.heard && ctx.Err() != nil && b.causes.wrong == nil:
		o.err, o.cut = b.causes.err(), true
	case b.causes.wrong != nil || len(b.causes.errs) > len(b.engine.nodes)-b.engine.need:
		o.err, o.final = b.causes.err(), b.causes.final()
	case !o.heard && !b.first:
		o.err = b.causes.err()
	}
	return o
}
