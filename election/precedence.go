package election

import (
	"maps"
	"sort"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// precedence is what a candidate knows about the others, and when it gives way to one of them. It
// does so in two cases: it has been granted the lock and a better candidate waits, or it leads and
// a better candidate has waited for the settle time. Giving way means to release the lock and to
// queue again behind the others. On an engine with a queue, each candidate in front of the best one
// does so once.
//
// A candidate that has led only briefly has failed, and is not preferred for some time. Every
// candidate judges that by itself, from what it sees.
type precedence struct {
	settle time.Duration
	brief  time.Duration // a leader whose term is shorter has failed

	mu     sync.Mutex          // guards what follows
	seen   map[string]sighting // waiting requests, by owner
	claims []claim             // those of the latest look that may be preferred, the best one first
	last   reign               // the latest leader
	gave   string              // the latest acquisition of this candidate that gave way
	gaveTo rival               // the candidate that it gave way to
	to     string              // the host on which an operator wanted the leader to be at the latest look; "" for none
	failed map[rival]failure
}

// rival is a candidate as others see it. It stays the same when its process is restarted.
type rival struct {
	host string
	rank int
}

// reign is the term of a leader.
type reign struct {
	rival
	owner string
	begun time.Time // zero if it began before this candidate looked
	due   bool      // this candidate gave way to it and has not seen it leading
}

// failure records that a rival has led only briefly.
type failure struct {
	count int
	until time.Time // when it is preferred again
}

// sighting is when a waiting request was seen.
type sighting struct {
	rival
	first, last time.Time
}

// finding is the result of a look at the others.
type finding struct {
	better *claim // to which this candidate must give way; nil if there is none
	chosen bool   // an operator wants this candidate to lead
	hidden bool   // a better candidate has waited shortly before and is not listed now
}

// claim is a waiting request that may be preferred.
type claim struct {
	rival
	owner string
}

const (
	mostDoublings = 6 // a candidate that keeps failing is not preferred for 64 settle times at most
	longestSettle = 30 * 24 * time.Hour
	shortestPause = 10 * time.Millisecond // between two looks at the others
)

func newPrecedence(settle, ttl time.Duration) *precedence {
	// A crash is noticed only when the lease has expired.
	return &precedence{settle: settle, brief: settle + ttl, seen: map[string]sighting{}, failed: map[rival]failure{}}
}

// look records who leads and who waits. If own, an acquisition of this candidate, is the holder, it
// finds the best candidate that has been seen waiting for at least wait, if that is better.
func (p *precedence) look(s fencelock.Status, own string, wait time.Duration) (f finding) {
	if len(s.Holders) == 0 || s.Holders[0].Owner == "" {
		return f
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, holder, to := time.Now(), s.Holders[0], wished(s)
	holding := rivalOf(holder.Host, holder.Note, to)
	delete(p.seen, holder.Owner)
	_, _, wish := readNote(holder.Note)
	if wish == "" { // otherwise the operator's request is not among the waiters
		p.forgive(to)
	}
	p.notice(s.Waiters, to, now)
	f.hidden = p.hides(holding, now)
	switch {
	case wish != "" || f.hidden || holder.Owner == p.gave:
	case p.last.due && holding == p.last.rival:
		p.last = reign{rival: holding, owner: holder.Owner, begun: now}
	case p.last.due && holder.Owner != own && p.waits(p.last.owner): // this one was in front of it, and gives way as well
	case holder.Owner != p.last.owner:
		p.judge(holding, now)
		p.last = reign{rival: holding, owner: holder.Owner, begun: p.firstSeen(now)}
		p.notice(s.Waiters, to, now)
	}
	if holder.Owner != own {
		return f
	}
	for _, c := range p.claims {
		if c.rank < holding.rank && now.Sub(p.seen[c.owner].first) >= wait && (wait == 0 || p.agreed(c.rival, now)) {
			f.better = &c
			return f
		}
	}
	f.chosen = to != "" && to == holder.Host
	return f
}

// waits reports whether a request of that owner was among the waiters shortly before. The caller
// holds mu.
func (p *precedence) waits(owner string) bool {
	_, ok := p.seen[owner]
	return ok
}

// firstSeen returns when a leader that is seen now has begun: unknown if it is the first one. The
// caller holds mu.
func (p *precedence) firstSeen(now time.Time) time.Time {
	if p.last.owner == "" {
		return time.Time{}
	}
	return now
}

// giveWay records that own, an acquisition of this candidate, is released for another candidate. If
// that one leads only briefly, or not before this candidate is granted the lock again, it has
// failed.
func (p *precedence) giveWay(own string, to *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gave, p.gaveTo, p.last = own, to.rival, reign{to.rival, to.owner, time.Now(), true}
}

// notice records the waiting requests: when each was seen, and which may be preferred. The caller
// holds mu.
func (p *precedence) notice(waiters []fencelock.Waiter, to string, now time.Time) {
	maps.DeleteFunc(p.seen, func(_ string, s sighting) bool { return now.Sub(s.last) > 2*p.pause() })
	p.claims = nil
	for _, w := range waiters {
		if _, _, wish := readNote(w.Note); wish != "" || w.Kind != fencelock.KindElection {
			continue // no candidate
		}
		c := claim{rivalOf(w.Host, w.Note, to), w.Owner}
		s, ok := p.seen[w.Owner]
		if !ok {
			s.first = now
		}
		p.seen[w.Owner] = sighting{c.rival, s.first, now}
		if p.preferable(c.rival, now) {
			p.claims = append(p.claims, c)
		}
	}
	sort.SliceStable(p.claims, func(i, j int) bool { return p.claims[i].rank < p.claims[j].rank })
}

// preferable reports whether r has not failed recently. The caller holds mu.
func (p *precedence) preferable(r rival, now time.Time) bool { return !now.Before(p.failed[r].until) }

// agreed reports whether the other candidates prefer r, too. They may have noticed later than this
// one that it has failed. The caller holds mu.
func (p *precedence) agreed(r rival, now time.Time) bool {
	return p.preferable(r, now.Add(-2*p.pause()))
}

// forgive forgets that a leader on the host to has failed, if an operator begins to want the leader
// there. The caller holds mu.
func (p *precedence) forgive(to string) {
	if to != p.to {
		delete(p.failed, rival{to, -1})
	}
	p.to = to
}

// hides reports whether a candidate that is better than r has waited shortly before now. The caller
// holds mu.
func (p *precedence) hides(r rival, now time.Time) bool {
	for _, s := range p.seen {
		if s.last != now && s.rank < r.rank && p.preferable(s.rival, now) {
			return true
		}
	}
	return false
}

// judge decides whether the last leader has failed, now that next holds the lock. It has not if it
// may have given way to a better one, be it next or one to which next gives way. The caller holds
// mu.
func (p *precedence) judge(next rival, now time.Time) {
	if len(p.claims) > 0 && p.claims[0].rank < next.rank {
		next = p.claims[0].rival
	}
	last := p.last
	switch {
	case last.owner == "":
	case last.begun.IsZero() || now.Sub(last.begun) >= p.brief:
		delete(p.failed, last.rival)
	case next.rank > last.rank || next == last.rival:
		count := p.failed[last.rival].count + 1
		p.failed[last.rival] = failure{count, now.Add(p.settle << min(count, mostDoublings))}
	}
	longest := p.settle << mostDoublings
	maps.DeleteFunc(p.failed, func(_ rival, f failure) bool { return now.Sub(f.until) > longest })
}

// rivalOf returns a holder or waiter as a rival. A candidate on the host to, where an operator wants
// the leader to be, is better than all others.
func rivalOf(host, note, to string) rival {
	_, rank, _ := readNote(note)
	if to != "" && to == host {
		rank = -1
	}
	return rival{host, rank}
}

// wished returns the host on which an operator wants the leader to be, or "".
func wished(s fencelock.Status) string {
	for _, w := range s.Waiters {
		if _, _, to := readNote(w.Note); to != "" && w.Kind == fencelock.KindElection {
			return to
		}
	}
	return ""
}

// gaveWay reports whether own, an acquisition of this candidate, was released for another candidate.
func (p *precedence) gaveWay(own string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return own != "" && own == p.gave
}

// let reports whether the candidate to which this one has given way holds the lock.
func (p *precedence) let(s fencelock.Status) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(s.Holders) > 0 && rivalOf(s.Holders[0].Host, s.Holders[0].Note, wished(s)) == p.gaveTo
}

// pause returns how often a candidate looks at the others.
func (p *precedence) pause() time.Duration { return max(min(p.settle/10, pollLater), shortestPause) }
