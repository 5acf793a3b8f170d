package recordlock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
)

type request struct {
	who, seq int
	get      bool
	st       *state
	from     string
	life     time.Duration
}

type call struct {
	request
	m        moment
	executed bool
	after    *state // the answer of a read
	version  string
	err      error
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
	undoes  map[*job]string // that withdraw a request, and its owner
	left    int             // acquires
	renewed int             // renewals of this acquisition
	life    int             // incarnation
}

type world struct {
	explore.World[string]
	rec     *state // nil if the record does not exist
	version int
	ends    time.Duration // of the record; 0 means never
	net     []request
	seq     int
	cl      [explore.MostClients]client
}

var start = time.Unix(1_700_000_000, 0)

// time is what the clock of a client shows.
func (w *world) time(c int) time.Time {
	at := start.Add(w.Local(c))
	if c == 1 {
		at = at.Add(-w.Behind)
	}
	return at
}

func (w *world) moment(c int) moment {
	at := w.time(c)
	m := moment{now: at, wall: at, none: true}
	if w.Clock {
		m.known, m.none = true, false
		m.earliest, m.latest = start.Add(w.Now), start.Add(w.Now)
	}
	return m
}

// noEngine is open, and starts what reports a loss.
var noEngine = &Engine{tasks: tasks.New()}

// newClient returns a client that has not begun. life is its incarnation.
func newClient(i, left, life int) client {
	d := &worker{engine: noEngine, id: fmt.Sprintf("d%d.%d", i, life), name: "n", key: "n", wake: make(chan struct{}, 1), running: true, holds: map[string]*acquiring{}, old: true}
	return client{d: d, left: left, life: life, undoes: map[*job]string{}}
}

func (w *world) Copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i := range w.Clients {
		n.cl[i] = w.cl[i].copy()
	}
	return &n
}

func (c client) copy() client {
	o := c.d
	d := &worker{engine: o.engine, id: o.id, name: o.name, key: o.key, wake: o.wake, running: true, holds: o.holds, state: o.state, version: o.version,
		at: o.at, old: o.old, next: o.next, seen: o.seen, changed: o.changed, beat: o.beat, number: o.number, answered: o.answered}
	c.d = d
	moved := map[*job]*job{}
	move := func(j, to *job) *job { // to has the function of the copy
		apply := to.apply
		*to = *j
		if to.apply = apply; !to.ended {
			to.done = make(chan struct{})
		}
		moved[j] = to
		return to
	}
	if c.a != nil {
		a := *c.a
		a.worker, a.queued = d, make(chan driver.WaitInfo, 1)
		a.job = move(c.a.job, &job{apply: a.enter})
		a.acquires, c.a = &a, &a
	}
	if c.renews != nil {
		c.renews = move(c.renews, renewal(c.lease))
	}
	if c.leaves != nil {
		c.leaves = move(c.leaves, leaving(c.lease))
	}
	undoes := map[*job]string{}
	for j, owner := range c.undoes {
		undoes[move(j, &job{apply: j.apply})] = owner
	}
	c.undoes = undoes
	for _, j := range o.jobs {
		d.jobs = append(d.jobs, moved[j])
	}
	if c.call != nil {
		k := *c.call
		c.call = &k
	}
	return c
}

func clients(w *world) int  { return w.Clients }
func requests(w *world) int { return len(w.net) }

var steps = []explore.Step[*world]{
	{Name: "the store executes request #", Of: requests,
		Then: func(w *world, i int) { w.exec(i, false) }},
	{Name: "the store executes a copy of request #", Of: requests, Fault: explore.Copy,
		If:   func(w *world, i int) bool { return !w.net[i].get },
		Then: func(w *world, i int) { w.exec(i, true) }},
	{Name: "client # gets the answer", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].call != nil && w.cl[i].call.executed },
		Then: (*world).answer},
	{Name: "client # stops waiting for the answer", Of: clients, Fault: explore.Timeout, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].call != nil },
		Then: (*world).timeout},
	{Name: "client # decides", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].call == nil && len(w.cl[i].d.jobs) > 0 },
		Then: (*world).step},
	{Name: "client # works until its next change is stored", Of: clients, // this shortens traces and adds no state
		If:   func(w *world, i int) bool { return w.Late == 0 && w.cl[i].works() },
		Then: (*world).do},
	{Name: "client # acquires", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].a == nil && w.cl[i].left > 0 },
		Then: (*world).acquire},
	{Name: "client # renews", Of: clients,
		If: func(w *world, i int) bool {
			c := &w.cl[i]
			return c.sure && c.mayEnd() && w.RenewalDue(i, c.h, c.renewed)
		},
		Then: (*world).renew},
	{Name: "client # releases", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].mayEnd() },
		Then: (*world).release},
	{Name: "client # gives up", Of: clients, Fault: explore.GiveUp,
		If:   func(w *world, i int) bool { return w.cl[i].a != nil && !w.cl[i].has },
		Then: (*world).giveUp},
	{Name: "client # crashes", Of: clients, Fault: explore.Crash,
		If:   func(w *world, i int) bool { return w.cl[i].a != nil || len(w.cl[i].d.jobs) > 0 },
		Then: func(w *world, i int) { w.cl[i] = newClient(i, w.cl[i].left, w.cl[i].life+1) }},
	{Name: "time passes", Fault: explore.Delay, While: (*world).busy,
		If:   func(w *world, _ int) bool { return w.lives() && (w.Units == 0 || w.Now < time.Duration(w.Units)*unit) },
		Then: func(w *world, _ int) { w.pass() }},
	{Name: "a day passes", Fault: explore.Pause,
		Then: func(w *world, _ int) { w.Now += longTime }},
}

// works reports whether a client has something to do.
func (c *client) works() bool { return c.call != nil || len(c.d.jobs) > 0 }

// mayEnd reports whether a client has the lock, and neither renews nor releases it.
func (c *client) mayEnd() bool { return c.has && c.renews == nil && c.leaves == nil }

// busy reports whether a client waits for an answer: time that passes then is a delay.
func (w *world) busy() bool {
	return slices.ContainsFunc(w.cl[:], func(c client) bool { return c.call != nil })
}

// lives reports whether a client has something to do, now or later.
func (w *world) lives() bool {
	return slices.ContainsFunc(w.cl[:], func(c client) bool { return c.left > 0 || c.a != nil || c.d != nil && c.works() })
}

func (w *world) pass() {
	w.Now += unit
	w.expire()
}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	c.left--
	c.a = c.d.newAcquiring(driver.Request{Name: "n", TTL: lasts, Wait: true, Mode: driver.Exclusive})
	c.a.me.Owner = fmt.Sprintf("o%d.%d.%d", i, c.life, c.left)
	w.submit(i, c.a.job)
}

// submit gives a job to the worker of a client, which decides at once if it is idle.
func (w *world) submit(i int, j *job) {
	c := &w.cl[i]
	if c.d.submit(j); c.call == nil {
		w.step(i)
	}
}

func (w *world) send(i int, r request, m moment) {
	c := &w.cl[i]
	w.seq++
	r.who, r.seq = i, w.seq
	w.net = append(w.net, r)
	c.d.number++
	c.call = &call{request: r, m: m}
}

func (w *world) step(i int) {
	c := &w.cl[i]
	d := c.d
	w.endJobs(i)
	if w.after(i); len(d.jobs) == 0 {
		return
	}
	if !d.old {
		m := w.moment(i)
		if st, version := d.apply(m); st != nil {
			w.send(i, request{st: st, from: version, life: st.lone(m)}, m)
			return
		}
		if w.after(i); len(d.jobs) == 0 {
			return
		}
		d.old = true // it polls at any time
	}
	w.send(i, request{get: true}, moment{})
}

// endJobs ends the jobs whose callers have gone.
func (w *world) endJobs(i int) {
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
			c.undoes[j] = owner
		}
	}
	w.after(i)
}

// do lets a client work until its next change is stored, while nothing else happens.
func (w *world) do(i int) {
	for range 3 {
		if c := &w.cl[i]; c.call == nil && len(c.d.jobs) > 0 {
			w.step(i)
		}
		k := w.cl[i].call
		if k == nil {
			return
		}
		if w.finish(i); !k.get {
			return
		}
	}
}

// land executes and answers what was sent after a request, before anything else happens.
func (w *world) land(after int) {
	for i := range w.Clients {
		for w.cl[i].call != nil && w.cl[i].call.seq > after {
			w.finish(i)
		}
	}
}

// finish executes and answers the request of a client.
func (w *world) finish(i int) {
	seq := w.cl[i].call.seq
	if k := slices.IndexFunc(w.net, func(r request) bool { return r.seq == seq }); k >= 0 {
		w.exec(k, false)
	}
	w.answer(i)
}

// exec executes a request at the store. Its answer goes to the client if that still waits.
func (w *world) exec(i int, again bool) {
	r := w.net[i]
	if !again {
		w.net = slices.Delete(w.net, i, i+1)
	}
	w.expire()
	before, err := w.rec, error(nil)
	switch {
	case r.get:
	case r.from != w.at():
		err = driver.ErrConflict
	default:
		w.rec, w.ends = r.st, 0
		w.version++
		if r.life > 0 {
			w.ends = w.Now + r.life
		}
	}
	if c := w.cl[r.who].call; w.awaited(r) && !c.executed {
		c.executed, c.after, c.version, c.err = true, before, w.at(), err
	}
}

func (w *world) at() string {
	if w.rec == nil {
		return ""
	}
	return strconv.Itoa(w.version)
}

func (w *world) expire() {
	if w.rec != nil && w.ends > 0 && w.Now >= w.ends {
		w.rec, w.ends = nil, 0
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
		w.endJobs(i)
	}
	w.after(i)
}

// after does what the root does when jobs have ended.
func (w *world) after(i int) {
	c := &w.cl[i]
	now := w.Instant(i)
	if a := c.a; a != nil && !c.has && a.ended {
		if a.err != nil {
			c.a = nil
		} else {
			since := a.grant.Sent.Sub(w.time(i)) + w.Local(i)
			c.has = true
			c.d.collected(a)
			c.lease = driver.Lease{Name: "n", Owner: a.grant.Owner, Token: a.grant.Token, TTL: lasts}
			c.h = hold.New(w.Terms(lasts), hold.Instant{Mono: since, Boot: since, Wall: since}, lasts)
			if c.sure = c.h.Fresh(now); !c.sure {
				w.renew(i)
			}
		}
	}
	if j := c.renews; j != nil && j.ended {
		c.renews = nil
		switch {
		case j.err == nil && !c.sure:
			c.h, c.sure = hold.New(w.Terms(lasts), c.sent, lasts), true
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
	maps.DeleteFunc(c.undoes, func(j *job, _ string) bool { return j.ended })
	if c.a == nil && c.left == 0 && len(c.d.jobs) == 0 { // it does nothing any more
		*c = newClient(i, 0, c.life)
	}
}

func (w *world) renew(i int) {
	c := &w.cl[i]
	if c.sure {
		c.renewed++
		c.h.Step(hold.Event{Kind: hold.Tick}, w.Instant(i))
	}
	c.sent, c.renews = w.Instant(i), renewal(c.lease)
	c.d.submit(c.renews)
}

func (w *world) release(i int) {
	c := &w.cl[i]
	c.h.Step(hold.Event{Kind: hold.Released}, w.Instant(i))
	c.leaves = leaving(c.lease)
	w.submit(i, c.leaves)
}

// claim returns what a client relies on.
func (w *world) claim(i int) (explore.Claim[string], bool) {
	c := &w.cl[i]
	return explore.Claim[string]{Owner: c.lease.Owner, Token: c.lease.Token}, c.sure && explore.Relies(c.h, w.Instant(i))
}

// stored returns the holder in the record.
func (w *world) stored() (c explore.Claim[string]) {
	if w.rec != nil && len(w.rec.Holders) > 0 {
		c = explore.Claim[string]{Owner: w.rec.Holders[0].Owner, Token: w.rec.Holders[0].Token}
	}
	return c
}

// look judges what depends on the past, and drops what has no effect any more.
func (w *world) Look() {
	w.expire()
	w.Rely(w.claim)
	w.net = slices.DeleteFunc(w.net, func(r request) bool {
		return !w.awaited(r) && (r.get || r.from != "" && r.from != w.at())
	})
}

// awaited reports whether the client of a request waits for its answer.
func (w *world) awaited(r request) bool {
	k := w.cl[r.who].call
	return k != nil && k.seq == r.seq
}

func (w *world) Check() string { return w.Judge(w.claim, w.stored, w.fair) }

// fair reports whether a waiter gets a name that nobody has, without further faults.
func (w *world) fair() bool {
	if slices.ContainsFunc(w.cl[:], func(c client) bool { return c.has }) || !w.wanted() {
		return true
	}
	n := w.Copy()
	n.net = slices.DeleteFunc(n.net, func(r request) bool { return !n.awaited(r) })
	turn := func(i int) bool {
		for len(n.net) > 0 {
			n.exec(0, false)
		}
		if c := &n.cl[i]; c.call != nil {
			n.answer(i)
		} else if len(c.d.jobs) > 0 {
			n.step(i)
		}
		return n.cl[i].sure
	}
	return explore.Wait{Clients: w.Clients, Units: w.Fair, Turns: 8, Wants: n.wanted, Turn: turn, Pass: n.pass}.Ends()
}

func (w *world) wanted() bool { return slices.ContainsFunc(w.cl[:], client.wants) }

// wants reports whether a client waits for the lock. One whose grant came too late to be confirmed does
// not.
func (c client) wants() bool { return c.a != nil && (!c.has || c.sure || c.renews != nil) }

// keyOf adds what has an effect on the future, with the clients in an order. Tokens and the like count by
// rank, times relative to now.
func (w *world) keyOf(key *explore.Key, order []int) {
	var nums [64]int64
	all := nums[:0]
	states := make([]*state, 0, 12)
	see := func(st *state) {
		if st != nil && !slices.Contains(states, st) {
			states = append(states, st)
		}
	}
	see(w.rec)
	place := [explore.MostClients]byte{}
	for p, i := range order {
		place[i] = byte(p)
	}
	net := slices.Clone(w.net)
	slices.SortFunc(net, func(a, b request) int {
		return cmp.Or(cmp.Compare(place[a.who], place[b.who]), cmp.Compare(a.seq, b.seq))
	})
	for _, r := range net {
		see(r.st)
	}
	for _, i := range order {
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
	all = append(all, w.Top.Token)
	for i := range w.Clients {
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
	rank := func(v int64) { i, _ := slices.BinarySearch(all, v); key.Num(int64(i)) }
	text := func(s string) {
		from := len(*key)
		if key.Text(s); clientAt(s) >= 0 {
			(*key)[from+clientAt(s)] = '0' + place[s[clientAt(s)]-'0']
		}
	}
	wall := start.Add(w.Now).UnixMicro()
	claims := func(cs []claim) {
		key.Num(int64(len(cs)))
		for _, c := range cs {
			text(c.Owner)
			rank(c.Token)
			rank(c.Ticket)
			rank(c.Beat)
			key.Num(c.TTL)
			if w.Clock { // without it the stamps are not used
				key.Num(min(wall-c.Wall, c.TTL+3+w.Behind.Microseconds()), min(wall-c.Store, c.TTL+3))
			}
		}
	}
	for _, st := range states {
		rank(st.Last)
		claims(st.Holders)
		claims(st.Waiters)
	}
	id := func(st *state) { key.Num(int64(slices.Index(states, st))) }
	version := func(v string) { key.Flag(v == "", v == w.at()) }
	ago := func(t time.Time, now time.Time, top time.Duration) { key.Num(int64(min(now.Sub(t), top))) }
	id(w.rec)
	key.Flag(w.ends > 0) // only a long pause lasts so long
	rank(w.Top.Token)
	text(w.Top.Owner)
	text(w.Broken)
	key.Faults(w.Left)
	for _, r := range net {
		key.Flag(r.get, w.awaited(r))
		key.Num(int64(place[r.who]), int64(r.life))
		id(r.st)
		version(r.from)
	}
	for _, i := range order {
		c := &w.cl[i]
		d, now := c.d, w.time(i)
		rank(now.UnixMicro())
		key.Num(int64(c.left), int64(c.life), int64(c.renewed), int64(len(d.jobs)))
		key.Flag(c.has, c.sure, c.call != nil, d.old, c.a != nil, c.renews != nil, c.leaves != nil)
		id(d.state)
		version(d.version)
		ago(d.beat, now, 5*time.Second)
		for _, owner := range sortedKeys(d.seen, place) {
			text(owner)
			rank(d.seen[owner].beat)
			ago(d.seen[owner].at, now, lifeOf(owner)+3*time.Microsecond)
		}
		for _, j := range d.jobs {
			key.Flag(c.a != nil && j == c.a.job, j == c.renews, j == c.leaves, j.unsure, !j.until.IsZero(), d.answered <= j.after, d.number <= j.after)
			key.Num(int64(j.answer))
			if owner, undoes := c.undoes[j]; undoes {
				text(owner)
			}
			if !j.until.IsZero() {
				key.Num(int64(max(j.until.Sub(now), -1)))
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
			key.Flag(k.get, k.executed, k.err != nil)
			id(k.st)
			id(k.after)
			version(k.version)
			if !k.get {
				age := now.Sub(k.m.now) // a minute passes only as a long pause
				key.Num(int64(min(age, 5*time.Second)))
				key.Flag(age > storeLimit)
			}
		}
		if c.has {
			rank(c.lease.Token)
			key.Hold(c.h, w.Instant(i))
			if c.renews != nil {
				key.Num(int64(min(w.Instant(i).Since(c.sent), lasts)))
			}
		}
	}
	if w.Units > 0 {
		key.Num(int64(w.Now))
	}
}

// orders has the orders of so many clients.
var orders = [][][]int{1: {{0}}, 2: {{0, 1}, {1, 0}}, 3: {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}}

// key is the same for worlds that differ only by which client is which, unless their clocks differ.
func (w *world) Key(least *explore.Key) {
	all := orders[w.Clients]
	if w.Behind != 0 || w.Rates[0] != 0 {
		all = all[:1]
	}
	w.keyOf(least, all[0])
	var other explore.Key
	for _, order := range all[1:] {
		other = other[:0]
		if w.keyOf(&other, order); bytes.Compare(other, *least) < 0 {
			*least = append((*least)[:0], other...)
		}
	}
}

func lifeOf(id string) time.Duration {
	if strings.HasPrefix(id, "place") {
		return 5 * time.Second
	}
	return lasts
}

// clientAt returns where the id of an owner, or of its place, has the number of its client, or -1.
func clientAt(id string) int {
	i := strings.LastIndexByte(id, 'o') + 1
	if i == 0 || i == len(id) || id[i] < '0' || id[i] > '9' {
		return -1
	}
	return i
}

func sortedKeys(s sightings, place [explore.MostClients]byte) []string {
	renamed := func(k string) byte {
		if i := clientAt(k); i >= 0 {
			return place[k[i]-'0']
		}
		return 0
	}
	return slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(renamed(a), renamed(b)), cmp.Compare(a, b))
	})
}

func (w *world) Show() string {
	waiting := 0
	if w.rec != nil {
		waiting = len(w.rec.Waiters)
	}
	return fmt.Sprintf("%s record%v queue %d", w.Line(w.claim), w.stored(), waiting)
}

func modelOf(b explore.Bounds) explore.Model[*world] {
	w := &world{World: explore.NewWorld[string](&b)}
	for c := range b.Clients {
		w.cl[c] = newClient(c, b.Acquires, 0)
	}
	sent := func(w *world) int { return w.seq }
	return explore.Model[*world]{Init: w, Steps: steps, Limit: 8_000_000}.AtOnce(sent, (*world).land)
}

var explored = []explore.Bounds{
	{Name: "2 clients", Clients: 2, Acquires: 1, Renews: 1},
	{Name: "2 clients, 1 crash, store clock; who waits gets in", Clients: 2, Acquires: 1, Renews: 1, Crashes: 1, Clock: true, Fair: 4},
	{Slow: true, Name: "2 clients, 1 crash; who waits gets in", Clients: 2, Acquires: 1, Renews: 1, Crashes: 1, Fair: 7},
	{Slow: true, Name: "2 clients, 1 delay", Clients: 2, Acquires: 1, Renews: 1, Delays: 1},
	{Slow: true, Name: "2 clients, 1 pause of a day, store clock", Clients: 2, Acquires: 1, Renews: 1, Pauses: 1, Clock: true},
	{Slow: true, Name: "2 clients, 1 request given up, 5 units", Clients: 2, Acquires: 1, Renews: 1, GiveUps: 1, Units: 5},
	{Slow: true, Name: "2 clients, 1 time-out, 4 units", Clients: 2, Acquires: 1, Renews: 1, Timeouts: 1, Units: 4},
	{Slow: true, Name: "2 clients, clocks 2 % apart, 5 units", Clients: 2, Acquires: 1, Renews: 1, Units: 5, Rates: explore.Drift},
	{Slow: true, Name: "2 clients, 2 late requests, 1 doubled request, 4 units", Clients: 2, Acquires: 1, Renews: 1, Late: 2, Copies: 1, Units: 4},
	{Slow: true, Name: "2 clients with 2 acquires, 1 late request, 1 time-out, 3 units", Clients: 2, Acquires: 2, Renews: 1, Late: 1, Timeouts: 1, Units: 3},
	{Slow: true, Name: "2 clients with 2 acquires, 1 late request, 1 crash, 3 units", Clients: 2, Acquires: 2, Renews: 1, Late: 1, Crashes: 1, Units: 3},
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey: states with one key have the same future.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// TestExploreMargin takes away the margin of the hold.
func TestExploreMargin(t *testing.T) {
	explore.MustBreak(t, explore.Run(modelOf(explore.Bounds{Clients: 2, Acquires: 1, Renews: 1, Units: 5, Margin: 1, Rates: explore.Drift}), 2))
}

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds{
	{Name: "3 clients, time-outs, crashes, give-ups, doubled requests", Clients: 3, Acquires: 5, Renews: 3, Delays: 30, Timeouts: 5, Crashes: 2, GiveUps: 3, Copies: 3},
	{Name: "the same, store clock", Clients: 3, Acquires: 5, Renews: 3, Delays: 30, Timeouts: 5, Crashes: 2, GiveUps: 3, Copies: 3, Pauses: 1, Clock: true},
	{Name: "the same, clocks 2 % apart", Clients: 3, Acquires: 5, Renews: 3, Delays: 30, Timeouts: 5, Crashes: 2, GiveUps: 3, Copies: 3, Rates: explore.Drift},
	{Name: "2 clients, one clock an hour behind; who waits gets in", Clients: 2, Acquires: 5, Renews: 1, Delays: 20, Timeouts: 3, Crashes: 1, Behind: time.Hour, Fair: 7},
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustBreak(t, explore.Walk(modelOf(explore.Bounds{Clients: 2, Acquires: 5, Renews: 3, Delays: 10, Margin: 1, Rates: explore.Drift}), 1, 1_000_000, 2))
}

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":       {Clients: 2, Acquires: 1, Renews: 1},
	"again":       {Clients: 2, Acquires: 2, Renews: 1},
	"rates":       {Clients: 2, Acquires: 1, Renews: 1, Rates: explore.Drift},
	"delays":      {Clients: 2, Acquires: 1, Renews: 1, Delays: 2},
	"time-outs":   {Clients: 2, Acquires: 2, Renews: 1, Delays: 1, Timeouts: 2},
	"crash":       {Clients: 2, Acquires: 1, Renews: 1, Crashes: 1, Fair: 7},
	"renews":      {Clients: 2, Acquires: 1, Renews: 2},
	"crash again": {Clients: 2, Acquires: 2, Renews: 1, Crashes: 1, Fair: 7},
	"day":         {Clients: 2, Acquires: 2, Renews: 1, Timeouts: 1, Pauses: 1},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the decisions and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, "..", []explore.Mutant{
		explore.Change("a lease that is over is renewed", "job.go", "delays", "if h == nil || h.Token != l.Token {\n\t\t\treturn refused", "if h == nil {\n\t\t\treturn stored, nil\n\t\t}\n\t\tif h.Token != l.Token {\n\t\t\treturn refused"),
		explore.Change("anybody ends a holder", "job.go", "again", "case h != nil && h.Token == l.Token:\n\t\t\tst.remove(l.Owner)", "case h != nil || len(st.Holders) > 0:\n\t\t\tst.Holders = nil"),
		explore.Change("a token does not grow", "state.go", "again", "st.Last = max(st.Last+1, m.wall.UnixMicro())", "st.Last = max(st.Last, 1)"),
		explore.Change("a lease ends after a quarter", "state.go", "plain", "return left <= 0\n\t}\n\tdead", "return left <= micros(l.TTL)*3/4\n\t}\n\tdead"),
		explore.Change("a request fits beside a holder", "state.go", "plain", "if taken > 0 && (exclusive", "if false && (exclusive"),
		explore.Change("a dead holder stays", "state.go", "crash", "slices.DeleteFunc(st.Holders, dead), slices.DeleteFunc(st.Waiters, dead)", "st.Holders, slices.DeleteFunc(st.Waiters, dead)"),
		explore.Change("a dead waiter stays", "state.go", "crash again", "slices.DeleteFunc(st.Holders, dead), slices.DeleteFunc(st.Waiters, dead)", "slices.DeleteFunc(st.Holders, dead), st.Waiters"),
		explore.Change("a renewal does not begin the lease again", "lease.go", "renews", "if old, ok := s[id]; ok && old.beat == l.Beat {", "if old, ok := s[id]; ok {", "if seen, ok := s[id]; ok && seen.beat == l.Beat {", "if seen, ok := s[id]; ok {"),
		explore.Change("a renewal has the same beat", "lease.go", "renews", "l.Beat = max(l.Beat+1, m.wall.UnixMicro())", "l.Beat = max(l.Beat, 1)"),
		explore.Change("a lease is half as long", "lease.go", "plain", "micros(l.TTL + 2)", "micros(l.TTL) / 2"),
		explore.Change("a lease counts from before the answer", "step.go", "plain", "w.seen = w.seen.note(st, now)", "w.seen = w.seen.note(st, now.Add(-3*time.Second))"),
		explore.Change("a conflict counts as stored", "step.go", "plain", "case err == nil:\n\t\tw.beat", "case err == nil || errors.Is(err, driver.ErrConflict):\n\t\tw.beat"),
		explore.Change("what waits is granted", "step.go", "plain", "case waits, joins:\n\t\t\ta.queue(st)", "case joins:\n\t\t\ta.queue(st)\n\t\tcase waits:\n\t\t\ta.grant.Owner, a.grant.Token, a.grant.Sent = a.me.Owner, st.Last+1, time.Unix(1_700_000_000, 0)\n\t\t\tw.finish(j, nil)"),
		explore.Change("who finds an earlier attempt keeps its token", "acquire.go", "day", "	if closed || st.holder(a.me.Owner) != nil {", "	if h := st.holder(a.me.Owner); h != nil {\n\t\th.renew(m)\n\t\ta.grant = driver.Grant{Owner: h.Owner, Token: h.Token, Floor: h.Token, Sent: m.now, TTL: a.req.TTL}\n\t\treturn stored, nil\n\t}\n\tif closed || st.holder(a.me.Owner) != nil {"),
		explore.Change("a token counts however late it was stored", "step.go", "day", "m.age(now) > storeLimit", "m.age(now) > 10000*storeLimit"),
		explore.Change("the store's answer is not needed", "step.go", "time-outs", "case !errors.Is(err, driver.ErrConflict) && !final(err): // it may have been stored, or may still be\n", "case !errors.Is(err, driver.ErrConflict) && !final(err):\n\t\tw.settle(st)\n"),
	})
}
