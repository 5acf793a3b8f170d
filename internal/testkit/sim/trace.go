package sim

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/quorum"
)

// say writes one line of the trace.
func (w *World) say(format string, args ...any) {
	fmt.Fprintf(w.Trace, "%12v  "+format+"\n", append([]any{time.Duration(w.now)}, args...)...)
}

var (
	statusNames   = [...]string{"granted", "held", "quarantined", "other nodes", "too late", "kept for others", "not the owner to adopt from"}
	standingNames = [...]string{"silent", "renewed", "free", "taken"}
)

// trace writes a description of an event.
func (w *World) trace(e *event) {
	name := kindNames[e.kind]
	switch {
	case e.kind == evAsk:
		w.say("node %d: %s of client %d for owner %d, proposing %d, flags %b, adopts %d", e.node, name, e.client, e.owner, e.token, e.flags, e.from)
	case e.kind <= evLeave:
		w.say("node %d: %s of client %d for owner %d, token %d", e.node, name, e.client, e.owner, e.token)
	case e.kind == evVote && Status(e.answer) == Granted:
		w.say("client %d: node %d grants owner %d token %d, floor %d", e.client, e.node, e.owner, e.token, e.floor)
	case e.kind == evVote:
		w.say("client %d: node %d refuses owner %d: %s", e.client, e.node, e.owner, statusNames[e.answer])
	case e.kind == evRaised:
		w.say("client %d: node %d stored the token of owner %d: %v", e.client, e.node, e.owner, e.answer == 1)
	case e.kind == evStanding:
		w.say("client %d: node %d says of owner %d: %s", e.client, e.node, e.owner, standingNames[quorum.Standing(e.answer)])
	case e.kind == evTold:
		w.say("client %d: node %d tells %d that the name is free", e.client, e.node, e.token)
	case e.kind <= evDone:
		w.say("client %d: %s", e.client, name)
	case e.kind == evWrite:
		w.say("resource: write of client %d with token %d", e.client, e.token)
	}
}
