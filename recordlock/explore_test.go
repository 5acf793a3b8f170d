package recordlock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/tasks"
	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// The explorer drives the decisions that ship: worker.apply, worker.wrote, worker.took,
// acquiring.enter and leave, renewal, leaving, and the root's hold machine. It replaces goroutines,
// timers and the store.

const (
	unit     = 2 * time.Second // of the explored time
	lasts    = 2 * unit        // the TTL
	longTime = 25 * time.Hour
	most     = 3 // clients
)

// bounds say what may happen, and how often.
type bounds struct {
	delays                       int // units of time that pass while a request is on its way, of all requests together
	renews                       int // of each acquisition; 0 means 1
	clients, acquires            int // acquires of each client
	timeouts, crashes, jumps     int // of all clients together; requests that timed out stay on their way
	losses, giveups, copies, all int // copies: requests that are executed twice. all: steps of time, 0 is no bound
	late                         int // requests during which something else happens, of all clients together; 0 is no bound
	clock                        bool
	rates                        [most]float64
	behind                       time.Duration // of the clock of the second client
	margin                       time.Duration
	fair                         int // the most units until a waiter gets a lock without a holder; 0 is not judged
}

type request struct {
	who, seq int
	get      bool
	st       *state
	from     string
	life     time.Duration
}

type call struct {
	seq      int
	get      bool
	st       *state
	m        moment
	executed bool
	after    *state // the answer of a read
	version  string
	err      error
}

// undo is a job that withdraws a request.
type undo struct {
	job   *job
	owner string
}

type client struct {
	d       *worker
	a       *acquiring
	call    *call
	h       hold.Hold
	has     bool // acquire has returned
	sure    bool // the root has let the caller have it
	sent    hold.Instant
	lease   driver.Lease
	renews  *job
	leaves  *job
	undoes  []undo
	left    int // acquires
	renewed int // renewals of this acquisition
	life    int // incarnation
}

type world struct {
	b                                                         *bounds
	now                                                       time.Duration
	rec                                                       *state
	version                                                   int
	gone                                                      bool // the record does not exist
	ends                                                      time.Duration
	net                                                       []request
	seq                                                       int
	cl                                                        [most]client
	top                                                       int64 // the greatest token that a holder has relied on
	topper                                                    string
	timeouts, crashes, jumps, losses, giveups, copies, delays int
	late                                                      int
	broken                                                    string
}

const (
	kAcquire = iota
	kStep
	kExec
	kCopy
	kAnswer
	kTimeout
	kTick
	kJump
	kRenew
	kRelease
	kGiveUp
	kCrash
	kLose
	kDo
	kLate = 32 // with one of the others: something happens before its request is answered
)

var start = time.Unix(1_700_000_000, 0)

func (w *world) local(c int) time.Duration { return time.Duration(float64(w.now) * w.b.rates[c]) }

// time is what the clock of a client shows.
func (w *world) time(c int) time.Time {
	at := start.Add(w.local(c))
	if c == 1 {
		at = at.Add(-w.b.behind)
	}
	return at
}

func (w *world) instant(c int) hold.Instant {
	l := w.local(c)
	return hold.Instant{Mono: l, Boot: l, Wall: l}
}

func (w *world) moment(c int) moment {
	at := w.time(c)
	m := moment{now: at, wall: at, none: true}
	if w.b.clock {
		m.known, m.none = true, false
		m.earliest, m.latest = start.Add(w.now), start.Add(w.now)
	}
	return m
}

// noEngine is open, and starts what reports a loss.
var noEngine = &Engine{tasks: tasks.New()}

func (w *world) worker(c int) *worker {
	return &worker{engine: noEngine, id: fmt.Sprintf("d%d.%d", c, w.cl[c].life), name: "n", key: "n", wake: make(chan struct{}, 1), running: true, holds: map[string]*acquiring{}, old: true}
}

func initial(b *bounds) *world {
	w := &world{b: b, gone: true, timeouts: b.timeouts, crashes: b.crashes, jumps: b.jumps, losses: b.losses, giveups: b.giveups, copies: b.copies, delays: b.delays, late: b.late}
	for c := range b.clients {
		w.cl[c].left = b.acquires
		w.cl[c].d = w.worker(c)
	}
	return w
}

func (w *world) copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i := range w.b.clients {
		n.cl[i] = w.cl[i].copy()
	}
	return &n
}

func fresh(j *job) *job {
	n := *j
	if !n.ended {
		n.done = make(chan struct{})
	}
	return &n
}

func (c client) copy() client {
	o := c.d
	d := &worker{engine: o.engine, id: o.id, name: o.name, key: o.key, wake: o.wake, running: true, holds: o.holds, state: o.state, version: o.version,
		at: o.at, old: o.old, next: o.next, seen: o.seen, changed: o.changed, beat: o.beat, number: o.number, answered: o.answered}
	c.d = d
	moved := map[*job]*job{}
	if c.a != nil {
		a, j := *c.a, fresh(c.a.job)
		a.worker, a.queued, a.job = d, make(chan driver.WaitInfo, 1), j
		j.apply, j.acquires = a.enter, &a
		moved[c.a.job], c.a = j, &a
	}
	if c.renews != nil {
		j := fresh(c.renews)
		j.apply = renewal(c.lease).apply
		moved[c.renews], c.renews = j, j
	}
	if c.leaves != nil {
		j := leaving(c.lease)
		apply := j.apply
		*j = *fresh(c.leaves)
		j.apply = apply
		moved[c.leaves], c.leaves = j, j
	}
	c.undoes = slices.Clone(c.undoes)
	for i, u := range c.undoes {
		c.undoes[i].job = fresh(u.job)
		moved[u.job] = c.undoes[i].job
	}
	for _, j := range o.jobs {
		d.jobs = append(d.jobs, moved[j])
	}
	if c.call != nil {
		k := *c.call
		c.call = &k
	}
	return c
}

func (w *world) next(emit func(explore.Action, func(*world))) {
	act := func(k, c, arg int, f func(n *world, c *client)) {
		a := explore.Action{Kind: uint8(k), Who: uint8(max(c, 0)), Arg: uint8(arg)}
		seq := w.seq
		step := func(late bool) func(*world) {
			return func(n *world) {
				if c < 0 {
					f(n, nil)
				} else {
					f(n, &n.cl[c])
				}
				switch {
				case n.seq == seq || w.b.late == 0: // it has sent nothing, or all requests may be late
				case late:
					n.late--
				default:
					n.land(c, seq)
				}
				n.tidy()
			}
		}
		emit(a, step(false))
		if a.Kind |= kLate; c >= 0 && w.late > 0 {
			emit(a, step(true))
		}
	}
	for i := range w.net {
		act(kExec, -1, i, func(n *world, _ *client) { n.exec(i, false) })
		if w.copies > 0 && !w.net[i].get {
			act(kCopy, -1, i, func(n *world, _ *client) { n.copies--; n.exec(i, true) })
		}
	}
	for i := range w.b.clients {
		c := &w.cl[i]
		if c.call != nil {
			if c.call.executed {
				act(kAnswer, i, 0, func(n *world, c *client) { n.answer(i) })
			}
			if w.timeouts > 0 {
				act(kTimeout, i, 0, func(n *world, c *client) { n.timeouts--; n.timeout(i) })
			}
		} else if len(c.d.jobs) > 0 {
			act(kStep, i, 0, func(n *world, c *client) { n.step(i) })
		}
		if w.b.late == 0 && (c.call != nil || len(c.d.jobs) > 0) {
			act(kDo, i, 0, func(n *world, c *client) { n.do(i) })
		}
		if c.a == nil && c.left > 0 {
			act(kAcquire, i, 0, func(n *world, c *client) { n.acquire(i) })
		}
		if c.has && c.renews == nil && c.leaves == nil {
			if c.sure && c.renewed < max(w.b.renews, 1) {
				h := c.h
				if h.Step(hold.Event{Kind: hold.Tick}, w.instant(i)).Renew {
					act(kRenew, i, 0, func(n *world, c *client) { n.renew(i) })
				}
			}
			act(kRelease, i, 0, func(n *world, c *client) { n.release(i) })
		}
		if c.a != nil && !c.has && w.giveups > 0 {
			act(kGiveUp, i, 0, func(n *world, c *client) {
				n.giveups--
				n.giveUp(i)
			})
		}
		if w.crashes > 0 && (c.a != nil || len(c.d.jobs) > 0) {
			act(kCrash, i, 0, func(n *world, c *client) {
				n.crashes--
				n.cl[i] = client{left: c.left, life: c.life + 1}
				n.cl[i].d = n.worker(i)
			})
		}
	}
	waits, works := 0, false
	for _, c := range w.cl[:w.b.clients] {
		if c.call != nil {
			waits = 1
		}
		works = works || c.left > 0 || c.a != nil || c.call != nil || len(c.d.jobs) > 0
	}
	if works && w.delays >= waits && (w.b.all == 0 || w.now < time.Duration(w.b.all)*unit) {
		act(kTick, -1, 0, func(n *world, _ *client) { n.now += unit; n.delays -= waits })
	}
	if w.jumps > 0 {
		act(kJump, -1, 0, func(n *world, _ *client) { n.jumps--; n.now += longTime })
	}
	if w.losses > 0 && !w.gone {
		act(kLose, -1, 0, func(n *world, _ *client) { n.losses--; n.gone, n.rec, n.version = true, nil, n.version+1 })
	}
}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	c.left--
	a := c.d.newAcquiring(driver.Request{Name: "n", TTL: lasts, Wait: true, Mode: driver.Exclusive})
	a.me.Owner = fmt.Sprintf("o%d.%d.%d", i, c.life, c.left)
	c.a = a
	c.d.submit(a.job)
	if c.call == nil {
		w.step(i)
	}
}

func (w *world) send(i int, r request, m moment) {
	c := &w.cl[i]
	w.seq++
	r.who, r.seq = i, w.seq
	w.net = append(w.net, r)
	c.d.number++
	c.call = &call{seq: w.seq, get: r.get, st: r.st, m: m}
}

func (w *world) step(i int) {
	c := &w.cl[i]
	d := c.d
	w.busy(i)
	w.after(i)
	if len(d.jobs) == 0 {
		return
	}
	if d.old {
		w.send(i, request{get: true}, moment{})
		return
	}
	m := w.moment(i)
	if st, version := d.apply(m); st != nil {
		w.send(i, request{st: st, from: version, life: st.lone(m)}, m)
		return
	}
	w.after(i)
	if len(d.jobs) > 0 { // it polls at any time
		d.old = true
		w.send(i, request{get: true}, moment{})
	}
}

// busy ends the jobs whose callers have gone.
func (w *world) busy(i int) {
	d := w.cl[i].d
	d.busy(context.Background(), w.time(i))
	d.running = true // the model does what its goroutine does
}

// giveUp ends the wait of a client.
func (w *world) giveUp(i int) {
	c := &w.cl[i]
	owner, before := c.a.me.Owner, slices.Clone(c.d.jobs)
	c.a.leave(w.time(i))
	for _, j := range c.d.jobs {
		if !slices.Contains(before, j) {
			c.undoes = append(c.undoes, undo{j, owner})
		}
	}
	w.after(i)
}

// do lets a client work until its next change is stored, while nothing else happens.
func (w *world) do(i int) {
	for range 3 {
		c := &w.cl[i]
		if c.call == nil && len(c.d.jobs) > 0 {
			w.step(i)
		}
		if c.call == nil {
			return
		}
		read := c.call.get
		if k := slices.IndexFunc(w.net, func(r request) bool { return r.seq == w.cl[i].call.seq && r.who == i }); k >= 0 {
			w.exec(k, false)
		}
		if w.answer(i); !read {
			return
		}
	}
}

// land executes and answers what a client has sent since a request, before anything else happens.
func (w *world) land(i, since int) {
	for range 4 {
		k := w.cl[i].call
		if k == nil || k.seq <= since {
			return
		}
		w.exec(slices.IndexFunc(w.net, func(r request) bool { return r.seq == k.seq }), false)
		w.answer(i)
	}
}

// exec executes a request at the store. Its answer goes to the client if that still waits.
func (w *world) exec(i int, again bool) {
	r := w.net[i]
	if !again {
		w.net = slices.Delete(w.net, i, i+1)
	}
	w.expire()
	k := call{after: w.rec, version: w.at()}
	if !r.get {
		if r.from != w.at() {
			k.err = driver.ErrConflict
		} else {
			w.rec, w.gone, w.ends = r.st, false, 0
			w.version++
			if r.life > 0 {
				w.ends = w.now + r.life
			}
			k.version = w.at()
		}
	}
	if c := w.cl[r.who].call; c != nil && c.seq == r.seq && !c.executed {
		c.executed, c.after, c.version, c.err = true, k.after, k.version, k.err
	}
}

func (w *world) at() string {
	if w.gone {
		return ""
	}
	return strconv.Itoa(w.version)
}

func (w *world) expire() {
	if !w.gone && w.ends > 0 && w.now >= w.ends {
		w.gone, w.rec, w.ends = true, nil, 0
		w.version++
	}
}

func (w *world) answer(i int) {
	c := &w.cl[i]
	k, d, now := c.call, c.d, w.time(i)
	c.call = nil
	if k.err == nil {
		d.answered = d.number
	}
	if k.get {
		st := k.after
		if st == nil {
			st = &state{Format: format, Name: "n"}
		}
		d.took(st, k.version, now)
	} else if err := d.wrote(k.st, k.version, k.err, k.m, now); err != nil && !errors.Is(err, driver.ErrConflict) {
		d.fail(err, now)
	}
	w.after(i)
}

func (w *world) timeout(i int) {
	c := &w.cl[i]
	k, d, now := c.call, c.d, w.time(i)
	c.call = nil
	if !k.get {
		_ = d.wrote(k.st, "", driver.ErrUnavailable, k.m, now)
	}
	d.fail(driver.ErrUnavailable, now)
	if c.renews != nil { // the root gives an attempt a sixth of the TTL
		c.renews.until = now
		w.busy(i)
	}
	w.after(i)
}

// after does what the root does when jobs have ended.
func (w *world) after(i int) {
	c := &w.cl[i]
	now := w.instant(i)
	if a := c.a; a != nil && !c.has && a.ended {
		if a.err != nil {
			c.a = nil
		} else {
			since := a.grant.Sent.Sub(w.time(i)) + w.local(i)
			c.has = true
			c.d.collected(a)
			c.lease = driver.Lease{Name: "n", Owner: a.grant.Owner, Token: a.grant.Token, TTL: lasts}
			c.h = hold.New(w.terms(), hold.Instant{Mono: since, Boot: since, Wall: since}, lasts)
			if c.h.Fresh(now) {
				w.rely(i)
			} else {
				w.renew(i)
			}
		}
	}
	if j := c.renews; j != nil && j.ended {
		c.renews = nil
		switch {
		case j.err == nil && !c.sure:
			c.h = hold.New(w.terms(), c.sent, lasts)
			w.rely(i)
		case j.err == nil:
			c.h.Step(hold.Event{Kind: hold.Renewed, Sent: c.sent}, now)
		case errors.Is(j.err, driver.ErrNotHeld):
			c.h.Step(hold.Event{Kind: hold.Gone, Cause: j.err}, now)
		case !c.sure:
			w.release(i) // unconfirmed: given back
		default:
			c.h.Step(hold.Event{Kind: hold.Failed, Cause: j.err}, now)
		}
	}
	if j := c.leaves; j != nil && j.ended {
		c.leaves, c.has, c.sure, c.a = nil, false, false, nil
		c.renewed, c.lease, c.h, c.sent = 0, driver.Lease{}, hold.Hold{}, hold.Instant{}
	}
	c.undoes = slices.DeleteFunc(c.undoes, func(u undo) bool { return u.job.ended })
	if c.a == nil && c.left == 0 && len(c.d.jobs) == 0 { // it does nothing any more
		*c = client{life: c.life, d: w.worker(i)}
	}
}

func (w *world) terms() hold.Terms { return hold.Terms{TTL: lasts, Margin: w.b.margin, Leased: true} }

// rely begins the hold: from now on the caller works.
func (w *world) rely(i int) {
	c := &w.cl[i]
	c.sure = true
}

func (w *world) renew(i int) {
	c := &w.cl[i]
	if c.sure {
		c.renewed++
		c.h.Step(hold.Event{Kind: hold.Tick}, w.instant(i))
	}
	c.sent, c.renews = w.instant(i), renewal(c.lease)
	c.d.submit(c.renews)
}

func (w *world) release(i int) {
	c := &w.cl[i]
	c.h.Step(hold.Event{Kind: hold.Released}, w.instant(i))
	c.leaves = leaving(c.lease)
	c.d.submit(c.leaves)
	if c.call == nil {
		w.step(i)
	}
}

// tidy drops what can have no effect any more.
func (w *world) tidy() {
	w.expire()
	for i := range w.b.clients {
		c := &w.cl[i]
		switch {
		case !w.relies(i):
		case c.lease.Token > w.top:
			w.top, w.topper = c.lease.Token, c.lease.Owner
		case c.lease.Owner != w.topper:
			w.broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
	w.net = slices.DeleteFunc(w.net, func(r request) bool {
		k := w.cl[r.who].call
		waits := k != nil && k.seq == r.seq
		return !waits && (r.get || r.from != "" && r.from != w.at())
	})
}

func (w *world) relies(i int) bool {
	c := &w.cl[i]
	return c.sure && explore.Relies(c.h, w.instant(i))
}

func (w *world) check() string {
	for i := range w.b.clients {
		if w.b.losses > 0 || !w.relies(i) {
			continue
		}
		for k := range i {
			if w.relies(k) {
				return "1: two clients rely on the lock"
			}
		}
		c := &w.cl[i]
		if w.rec == nil || len(w.rec.Holders) == 0 {
			return "5: a client relies on a lock that somebody else has ended"
		}
		if h := w.rec.Holders[0]; h.Owner != c.lease.Owner || h.Token != c.lease.Token {
			return "3: the lock is granted while another client relies on it"
		}
	}
	if w.broken == "" && w.b.fair > 0 {
		if n := w.fair(); n > w.b.fair {
			return fmt.Sprintf("6, 7: nobody has the name, and a waiter does not get it in %d units", w.b.fair)
		}
	}
	return w.broken
}

// fair lets everything work without faults, and returns after how many units a waiter has the lock; 0
// if the rule does not apply, since somebody holds it or nobody wants it.
func (w *world) fair() int {
	all := w.cl[:w.b.clients]
	if slices.ContainsFunc(all, func(c client) bool { return c.has }) || !slices.ContainsFunc(all, client.wants) {
		return 0
	}
	n := w.copy()
	n.net = slices.DeleteFunc(n.net, func(r request) bool { k := n.cl[r.who].call; return k == nil || k.seq != r.seq })
	for units := 0; units <= w.b.fair; units++ {
		for range 8 {
			for i := range n.b.clients {
				for len(n.net) > 0 {
					n.exec(0, false)
				}
				if c := &n.cl[i]; c.call != nil {
					n.answer(i)
				} else if len(c.d.jobs) > 0 {
					n.step(i)
				}
				if n.cl[i].sure {
					return units
				}
			}
		}
		if !slices.ContainsFunc(n.cl[:n.b.clients], client.wants) {
			return 0 // the waits have ended with an error
		}
		n.now += unit
		n.expire()
	}
	return w.b.fair + 1
}

// wants reports whether a client waits for the lock. One whose grant came too late to be confirmed does
// not.
func (c client) wants() bool { return c.a != nil && (!c.has || c.sure || c.renews != nil) }

// key makes equal what has the same future: numbers count by rank, times relative to now.
func (w *world) keyOf(b []byte, perm []int) []byte {
	var nums [64]int64
	all := nums[:0]
	states := make([]*state, 0, 12)
	see := func(st *state) {
		if st != nil && !slices.Contains(states, st) {
			states = append(states, st)
		}
	}
	see(w.rec)
	place := [most]byte{}
	for p, i := range perm {
		place[i] = byte(p)
	}
	net := slices.Clone(w.net)
	slices.SortFunc(net, func(a, b request) int {
		return cmp.Or(cmp.Compare(place[a.who], place[b.who]), cmp.Compare(a.seq, b.seq))
	})
	for _, r := range net {
		see(r.st)
	}
	for _, i := range perm {
		see(w.cl[i].d.state)
		if k := w.cl[i].call; k != nil {
			see(k.st)
			see(k.after)
		}
	}
	for _, st := range states {
		all = append(all, st.Last)
		for _, h := range st.Holders {
			all = append(all, h.Token, h.Beat)
		}
		for _, h := range st.Waiters {
			all = append(all, h.Ticket, h.Beat)
		}
	}
	all = append(all, w.top)
	for i := range w.b.clients {
		c := &w.cl[i]
		all = append(all, w.time(i).UnixMicro(), c.lease.Token)
		if c.a != nil {
			all = append(all, c.a.me.Ticket, c.a.grant.Token)
		}
		for _, s := range c.d.seen {
			all = append(all, s.beat)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	rank := func(v int64) { i, _ := slices.BinarySearch(all, v); b = append(b, byte(i)) }
	num := func(v int64) { b = binary.AppendVarint(b, v) }
	flag := func(fs ...bool) {
		v := byte(0)
		for i, f := range fs {
			if f {
				v |= 1 << i
			}
		}
		b = append(b, v)
	}
	text := func(s string) {
		b = append(b, s...)
		if k := strings.LastIndexByte(s, 'o'); k >= 0 && k+1 < len(s) && s[k+1] >= '0' && s[k+1] <= '9' {
			b[len(b)-len(s)+k+1] = '0' + place[s[k+1]-'0']
		}
		b = append(b, 0)
	}
	wall := start.Add(w.now).UnixMicro()
	claims := func(cs []claim) {
		b = append(b, byte(len(cs)))
		for _, c := range cs {
			text(c.Owner)
			rank(c.Token)
			rank(c.Ticket)
			rank(c.Beat)
			num(c.TTL)
			if w.b.clock { // without it the stamps are not used
				num(min(wall-c.Wall, c.TTL+3+w.b.behind.Microseconds()))
				num(min(wall-c.Store, c.TTL+3))
			}
		}
	}
	for _, st := range states {
		rank(st.Last)
		claims(st.Holders)
		claims(st.Waiters)
	}
	id := func(st *state) { b = append(b, byte(slices.Index(states, st)+1)) }
	version := func(v string) {
		switch v {
		case "":
			b = append(b, 0)
		case w.at():
			b = append(b, 1)
		default:
			b = append(b, 2)
		}
	}
	ago := func(t time.Time, now time.Time, top time.Duration) { num(int64(min(now.Sub(t), top))) }
	id(w.rec)
	flag(w.gone)
	flag(w.ends > 0) // only a long pause lasts so long
	rank(w.top)
	text(w.topper)
	b = append(b, byte(w.timeouts), byte(w.crashes), byte(w.jumps), byte(w.losses), byte(w.giveups), byte(w.copies), byte(w.delays), byte(w.late))
	text(w.broken)
	for _, r := range net {
		k := w.cl[r.who].call
		flag(r.get, k != nil && k.seq == r.seq)
		b = append(b, place[r.who])
		id(r.st)
		version(r.from)
		num(int64(r.life))
	}
	for _, i := range perm {
		c := &w.cl[i]
		d, now := c.d, w.time(i)
		rank(now.UnixMicro())
		b = append(b, byte(c.left), byte(c.life), byte(c.renewed), byte(len(d.jobs)))
		flag(c.has, c.sure, c.call != nil, d.old, c.a != nil, c.renews != nil, c.leaves != nil)
		id(d.state)
		version(d.version)
		ago(d.beat, now, 5*time.Second)
		for _, owner := range sortedKeys(d.seen, place) {
			text(owner)
			rank(d.seen[owner].beat)
			ago(d.seen[owner].at, now, lifeOf(owner)+3*time.Microsecond)
		}
		for _, j := range d.jobs {
			flag(j == jobOf(c.a), j == c.renews, j == c.leaves, j.unsure, !j.until.IsZero(), d.answered <= j.after, d.number <= j.after)
			num(int64(j.answer))
			for _, u := range c.undoes {
				if j == u.job {
					text(u.owner)
				}
			}
			if !j.until.IsZero() {
				num(int64(max(j.until.Sub(now), -1)))
			}
		}
		if c.a != nil {
			text(c.a.me.Owner)
			rank(c.a.me.Ticket)
			if !c.has {
				rank(c.a.grant.Token)
				ago(c.a.grant.Sent, now, lasts)
			}
		}
		if k := c.call; k != nil {
			flag(k.get, k.executed, k.err != nil)
			id(k.st)
			id(k.after)
			version(k.version)
			if !k.get {
				age := now.Sub(k.m.now) // a minute passes only as a long pause
				num(int64(min(age, 5*time.Second)))
				flag(age > storeLimit)
			}
		}
		if c.has {
			rank(c.lease.Token)
			b = explore.HoldKey(b, c.h, w.instant(i))
			if c.renews != nil {
				num(int64(min(w.instant(i).Since(c.sent), lasts)))
			}
		}
	}
	if w.b.all > 0 {
		num(int64(w.now))
	}
	return b
}

var perms = [][][]int{1: {{0}}, 2: {{0, 1}, {1, 0}}, 3: {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}}

// key is the same for worlds that differ only by which client is which, unless their clocks differ.
func (w *world) key(b []byte) []byte {
	all := perms[w.b.clients]
	if w.b.behind != 0 || w.b.rates != [most]float64{1, 1, 1} {
		return w.keyOf(b, all[0])
	}
	var other []byte
	for i, p := range all {
		if i == 0 {
			b = w.keyOf(b, p)
		} else if other = w.keyOf(other[:0], p); bytes.Compare(other, b) < 0 {
			b = append(b[:0], other...)
		}
	}
	return b
}

func lifeOf(id string) time.Duration {
	if strings.HasPrefix(id, "place") {
		return 5 * time.Second
	}
	return lasts
}

func jobOf(a *acquiring) *job {
	if a == nil {
		return nil
	}
	return a.job
}

func sortedKeys(s sightings, place [most]byte) []string {
	keys := make([]string, 0, 8)
	for k := range s {
		keys = append(keys, k)
	}
	renamed := func(k string) byte {
		if i := strings.LastIndexByte(k, 'o'); i >= 0 && k[i+1] >= '0' && k[i+1] <= '9' {
			return place[k[i+1]-'0']
		}
		return 0
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(renamed(a), renamed(b)), cmp.Compare(a, b))
	})
	return keys
}

func (w *world) show(a explore.Action) string {
	what := []string{"acquires", "decides", "store executes", "store executes a copy of", "gets the answer", "has a timeout", "time passes", "a day passes",
		"renews", "releases", "gives up", "crashes", "the store loses the record", "executed and answered"}[a.Kind%kLate]
	line := fmt.Sprintf("%-4s ", w.now)
	switch a.Kind % kLate {
	case kTick, kJump, kLose:
		line += what
	case kExec, kCopy:
		line += fmt.Sprintf("%s request %d", what, a.Arg)
	default:
		line += fmt.Sprintf("%c %s", 'A'+a.Who, what)
		if k := w.cl[a.Who].call; a.Kind%kLate == kStep && k != nil {
			line += map[bool]string{true: ": reads", false: ": swaps"}[k.get]
		}
	}
	line = fmt.Sprintf("%-46s", line)
	who := []string{}
	if w.rec != nil {
		for _, h := range w.rec.Holders {
			who = append(who, fmt.Sprintf("%s/%d", h.Owner, h.Token-start.UnixMicro()))
		}
		for _, h := range w.rec.Waiters {
			who = append(who, "wait "+h.Owner)
		}
	}
	line += fmt.Sprintf(" record[%s]", strings.Join(who, " "))
	for i := range w.b.clients {
		if w.relies(i) {
			line += fmt.Sprintf("  %c RELIES", 'A'+i)
		}
	}
	return line
}

func modelOf(b bounds) explore.Model[*world] {
	for i := range b.rates {
		if b.rates[i] == 0 {
			b.rates[i] = 1
		}
	}
	if b.margin == 0 {
		b.margin = lasts/50 + 10*time.Millisecond
	}
	return explore.Model[*world]{
		Init: initial(&b), Copy: (*world).copy, Next: (*world).next, Key: (*world).key, Check: (*world).check, Show: (*world).show,
		Limit: 8_000_000,
	}
}

var drift = [most]float64{0.99, 1.01, 1}

// The bounds that are exhausted: the small ones by each run, the others with FENCELOCK_SLOW.
var explored = []explore.Bounds[bounds]{
	explore.Always("2 clients", bounds{clients: 2, acquires: 1}),
	explore.Always("2 clients, 1 crash, store clock; who waits gets in", bounds{clients: 2, acquires: 1, crashes: 1, clock: true, fair: 4}),
	explore.Slowly("2 clients, 1 crash; who waits gets in", bounds{clients: 2, acquires: 1, crashes: 1, fair: 7}),
	explore.Slowly("2 clients, 1 delay", bounds{clients: 2, acquires: 1, delays: 1}),
	explore.Slowly("2 clients, 1 pause of a day, store clock", bounds{clients: 2, acquires: 1, jumps: 1, clock: true}),
	explore.Slowly("2 clients, 1 request given up, 5 units", bounds{clients: 2, acquires: 1, giveups: 1, all: 5}),
	explore.Slowly("2 clients, 1 time-out, 4 units", bounds{clients: 2, acquires: 1, timeouts: 1, all: 4}),
	explore.Slowly("2 clients, clocks 2 % apart, 5 units", bounds{clients: 2, acquires: 1, all: 5, rates: drift}),
	explore.Slowly("2 clients, 2 late requests, 1 doubled request, 4 units", bounds{clients: 2, acquires: 1, late: 2, copies: 1, all: 4}),
	explore.Slowly("2 clients with 2 acquires, 1 late request, 1 time-out, 3 units", bounds{clients: 2, acquires: 2, late: 1, timeouts: 1, all: 3}),
	explore.Slowly("2 clients with 2 acquires, 1 late request, 1 crash, 3 units", bounds{clients: 2, acquires: 2, late: 1, crashes: 1, all: 3}),
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey compares the key with whole states.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// TestExploreMargin takes away the margin of the hold.
func TestExploreMargin(t *testing.T) {
	explore.MustBreak(t, modelOf(bounds{clients: 2, acquires: 1, all: 5, margin: 1, rates: drift}))
}

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds[bounds]{
	explore.Always("3 clients, time-outs, crashes, give-ups, doubled requests", bounds{clients: 3, acquires: 5, renews: 3, delays: 30, timeouts: 5, crashes: 2, giveups: 3, copies: 3}),
	explore.Always("the same, store clock", bounds{clients: 3, acquires: 5, renews: 3, delays: 30, timeouts: 5, crashes: 2, giveups: 3, copies: 3, jumps: 1, clock: true}),
	explore.Always("the same, clocks 2 % apart", bounds{clients: 3, acquires: 5, renews: 3, delays: 30, timeouts: 5, crashes: 2, giveups: 3, copies: 3, rates: drift}),
	explore.Always("2 clients, one clock an hour behind; who waits gets in", bounds{clients: 2, acquires: 5, delays: 20, timeouts: 3, crashes: 1, behind: time.Hour, fair: 7}),
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustMeet(t, modelOf(bounds{clients: 2, acquires: 5, renews: 3, delays: 10, margin: 1, rates: drift}))
}
