package twin

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// The explorer drives the twin of the scripts and the hold that ships. The requests of the client
// are modelled: it acquires, touches while it waits, confirms, renews, releases and leaves.

const (
	unit  = 2000 // milliseconds of the explored time, as long as a hand-over
	lasts = 2 * unit
	most  = 3    // clients
	epoch = 1e12 // milliseconds, of the server's clock
)

// bounds say what may happen, and how often, for all clients together.
type bounds struct {
	clients, acquires         int // acquires of each client
	renews                    int // of each acquisition
	units                     int // of time
	delays                    int // units of time that pass while a request is on its way
	timeouts, crashes, losses int
	copies                    int           // requests that are executed twice
	late                      int           // requests during which something else happens; 0 is no bound
	rates                     [most]float64 // of the clocks; 0 is 1
	margin                    time.Duration
	fair                      int // the most units until a waiter gets a name that nobody has; 0 is not judged
}

type sending struct {
	who, seq int
	kind     byte // acquire, touch, confirm, renew, end, leave
	owner    string
	token    int64
	until    int64 // microseconds
	ticket   int64
	back     bool // a touch puts the entry back
}

type call struct {
	sending
	sent   hold.Instant
	done   bool // the server has executed it
	answer string
}

// The phases of a client.
const (
	idle = iota
	asks
	waits
	confirms
	holds
	ends
)

type client struct {
	phase               byte
	call                *call
	h                   hold.Hold
	owner               string
	token, ticket       int64
	missing             bool // the server does not know its place
	left, life, renewed int
	inbox               []string // messages that were published and have not arrived
}

type world struct {
	b                                 *bounds
	n                                 *Name
	now                               int64 // milliseconds
	net                               []sending
	seq                               int
	cl                                [most]client
	granted, top                      int64 // the greatest tokens that were granted, and that a client has relied on
	topper                            string
	timeouts, crashes, losses, delays int
	copies, late                      int
	ended                             []string // owners that have left or released
	broken                            string
}

func (w *world) instant(c int) hold.Instant {
	rate := w.b.rates[c]
	if rate == 0 {
		rate = 1
	}
	l := time.Duration(float64(w.now*1e6) * rate)
	return hold.Instant{Mono: l, Boot: l, Wall: l}
}

func initial(b *bounds) *world {
	w := &world{b: b, timeouts: b.timeouts, crashes: b.crashes, losses: b.losses, delays: b.delays, copies: b.copies, late: b.late}
	w.n = &Name{Now: epoch * 1000, Keys: map[string]*Key{}, Listening: map[string]bool{}, Counts: true, Retention: 86_400_000}
	for i := range b.clients {
		w.cl[i].left = b.acquires
		w.n.Listening[fmt.Sprint("cl", i)] = true
	}
	return w
}

func (w *world) copy() *world {
	n := *w
	n.net = slices.Clone(w.net)
	for i := range n.cl {
		if k := n.cl[i].call; k != nil {
			c := *k
			n.cl[i].call = &c
		}
		n.cl[i].inbox = slices.Clone(n.cl[i].inbox)
	}
	s := Name{Now: w.n.Now, Keys: make(map[string]*Key, len(w.n.Keys)), Listening: w.n.Listening, Counts: true, Retention: w.n.Retention}
	for name, k := range w.n.Keys {
		c := *k
		c.Set = maps.Clone(k.Set)
		s.Keys[name] = &c
	}
	n.n = &s
	return &n
}

// The kinds of actions. Do is several at once: a request is executed and answered, and so are those
// that follow it, while nothing else happens. It shortens traces and adds no state.
const (
	kAcquire = iota
	kExec
	kAnswer
	kTimeout
	kTouch
	kHear
	kMiss
	kTick
	kRenew
	kRelease
	kCrash
	kLose
	kDo
	kCopy
	kLate = 32 // with one of the others: something happens before its request is answered
)

var what = [...]string{
	"acquires", "server executes", "gets the answer", "gives up its request", "touches", "receives the grant", "never receives the grant",
	"time passes", "renews", "releases", "crashes", "the server loses its data", "executed and answered", "server executes a copy of",
}

func (w *world) next(emit func(explore.Action, func(*world))) {
	act := func(k, c, arg int, f func(n *world)) {
		a := explore.Action{Kind: uint8(k), Who: uint8(c), Arg: uint8(arg)}
		seq := w.seq
		step := func(late bool) func(*world) {
			return func(n *world) {
				f(n)
				switch {
				case n.seq == seq || w.b.late == 0: // nothing was sent, or all requests may be late
				case late:
					n.late--
				default:
					n.land(c, seq)
				}
				n.look()
			}
		}
		emit(a, step(false))
		if a.Kind |= kLate; w.late > 0 {
			emit(a, step(true))
		}
	}
	for i := range w.net {
		act(kExec, 0, i, func(n *world) { n.exec(i, false) })
		if w.copies > 0 {
			act(kCopy, 0, i, func(n *world) { n.copies--; n.exec(i, true) })
		}
	}
	busy := 0
	for i := range w.b.clients {
		c := &w.cl[i]
		if c.call != nil {
			busy = 1
			if c.call.done {
				act(kAnswer, i, 0, func(n *world) { n.answer(i) })
			}
			if w.b.late == 0 {
				act(kDo, i, 0, func(n *world) { n.do(i) })
			}
			if w.timeouts > 0 {
				act(kTimeout, i, 0, func(n *world) { n.timeouts--; n.timeout(i) })
			}
		}
		for k := range c.inbox {
			act(kHear, i, k, func(n *world) { n.hear(i, k) })
			if w.timeouts > 0 {
				act(kMiss, i, k, func(n *world) { n.timeouts--; n.cl[i].inbox = slices.Delete(n.cl[i].inbox, k, k+1) })
			}
		}
		switch {
		case c.phase == idle && c.left > 0:
			act(kAcquire, i, 0, func(n *world) { n.acquire(i) })
		case c.phase == waits && c.call == nil:
			act(kTouch, i, 0, func(n *world) { n.send(i, 't') })
		case c.phase == holds && c.call == nil:
			h := c.h
			if c.renewed < w.b.renews && h.Step(hold.Event{Kind: hold.Tick}, w.instant(i)).Renew {
				act(kRenew, i, 0, func(n *world) {
					n.cl[i].renewed++
					n.cl[i].h.Step(hold.Event{Kind: hold.Tick}, n.instant(i))
					n.send(i, 'r')
				})
			}
			act(kRelease, i, 0, func(n *world) {
				n.cl[i].h.Step(hold.Event{Kind: hold.Released}, n.instant(i))
				n.cl[i].phase = ends
				n.send(i, 'e')
			})
		}
		if w.crashes > 0 && c.phase != idle {
			act(kCrash, i, 0, func(n *world) { n.crashes--; n.cl[i] = client{left: c.left, life: c.life + 1} })
		}
	}
	if w.delays >= busy && w.now < int64(w.b.units)*unit {
		act(kTick, 0, 0, func(n *world) { n.delays -= busy; n.pass() })
	}
	if w.losses > 0 && len(w.n.Keys) > 0 {
		act(kLose, 0, 0, func(n *world) { n.losses--; n.n.Keys = map[string]*Key{}; n.n.Now += 1000 }) // which takes a millisecond
	}
}

func (w *world) pass() {
	w.now += unit
	w.n.Now = (epoch + w.now) * 1000
	w.n.Sweep()
}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	c.left--
	c.owner, c.phase = fmt.Sprintf("o%d.%d.%d", i, c.life, c.left), asks
	w.send(i, 'a')
}

func (w *world) send(i int, kind byte) {
	c := &w.cl[i]
	w.seq++
	until := w.n.Now + unit*1000 - 1 // what follows in the model at once is a microsecond later
	r := sending{i, w.seq, kind, c.owner, c.token, until, c.ticket, c.missing}
	w.net = append(w.net, r)
	c.call = &call{sending: r, sent: w.instant(i)}
}

func desc(i int) string { return fmt.Sprintf("cl%d x 0 1 %d 0 1 h -", i, lasts) }

// do executes and answers the request of a client, and what it sends then.
func (w *world) do(i int) { w.land(i, 0) }

// land executes and answers what a client has sent since a request, before anything else happens.
func (w *world) land(i, since int) {
	for range 3 {
		k := w.cl[i].call
		if k == nil || k.seq <= since {
			return
		}
		if at := slices.IndexFunc(w.net, func(r sending) bool { return r.seq == k.seq }); at >= 0 {
			w.exec(at, false)
		}
		w.answer(i)
	}
}

// exec executes a request at the server, perhaps once more later.
func (w *world) exec(i int, again bool) {
	r := w.net[i]
	if !again {
		w.net = slices.Delete(w.net, i, i+1)
	}
	n, q := w.n, Request{Owner: r.owner, Desc: desc(r.who), Sent: "0", Until: r.until}
	before := n.Holders()
	var said string
	switch r.kind {
	case 'a':
		said = n.Acquire(q, true, false, true)
	case 't':
		e, back := Entry{q, r.ticket}, []Entry(nil)
		if r.back {
			back = []Entry{e}
		}
		said = n.Touch(fmt.Sprint("cl", r.who), "0", r.until, e, back)
	case 'c', 'r':
		said = n.Renew(r.owner, r.token, lasts, false)
	case 'e':
		said = n.Release(r.owner, r.token, "id", 0)
	case 'l':
		said = n.Leave(q, r.until)
	}
	for _, m := range n.Said {
		to, text, _ := strings.Cut(m, " ")
		if who := int(to[2] - '0'); strings.HasPrefix(text, "grant") && w.cl[who].phase != idle {
			w.cl[who].inbox = append(w.cl[who].inbox, text)
		}
	}
	n.Said = nil
	after := n.Holders()
	if (r.kind == 'e' || r.kind == 'l') && !slices.Contains(w.ended, r.owner) {
		w.ended = append(slices.Clip(w.ended), r.owner)
	}
	had := func(h Holder) bool {
		return slices.ContainsFunc(before, func(b Holder) bool { return b.Owner == h.Owner && b.Token == h.Token })
	}
	same := len(before) == len(after) && !slices.ContainsFunc(after, func(h Holder) bool { return !had(h) })
	switch {
	case r.until < n.Now && (r.kind == 'a' || r.kind == 't') && !same:
		w.broken = "4: a request acts after its end"
	case w.b.losses == 0 && slices.ContainsFunc(after, func(h Holder) bool { return slices.Contains(w.ended, h.Owner) }):
		w.broken = "4: a request acts after its owner has left or released"
	case (r.kind == 'e' || r.kind == 'r' || r.kind == 'c') && len(before) > 0 && (before[0].Owner != r.owner || before[0].Token != r.token) && !same:
		w.broken = "5: somebody else ends an acquisition"
	case slices.ContainsFunc(after, func(h Holder) bool { return !had(h) && h.Token <= w.granted }):
		w.broken = "2: a token is not greater than that of an earlier grant"
	}
	for _, h := range after {
		w.granted = max(w.granted, h.Token)
	}
	if k := w.cl[r.who].call; k != nil && k.seq == r.seq && !k.done {
		k.done, k.answer = true, said
	}
}

func (w *world) terms() hold.Terms {
	return hold.Terms{TTL: lasts * time.Millisecond, Margin: w.b.margin, Leased: true}
}

// answer does what a client does with the answer of its request.
func (w *world) answer(i int) {
	c := &w.cl[i]
	k := c.call
	c.call = nil
	f := strings.Fields(k.answer)
	switch {
	case k.kind == 'a' && (f[0] == "taken" || f[0] == "granted"):
		c.token, c.phase = number(f[2]), holds
		c.h = hold.New(w.terms(), k.sent, lasts*time.Millisecond)
		if !c.h.Fresh(w.instant(i)) {
			c.phase = confirms
			w.send(i, 'c')
		}
	case k.kind == 'a' && f[0] == "queued":
		c.phase, c.ticket = waits, number(f[2])
	case k.kind == 't' && f[0] == "mine":
		c.token, c.phase = number(f[3]), confirms
		w.send(i, 'c')
	case k.kind == 't' && f[0] != "late":
		c.missing = f[1] == "0"
	case k.kind == 't':
	case k.kind == 'c' && f[0] == "ok":
		c.h, c.phase = hold.New(w.terms(), k.sent, lasts*time.Millisecond), holds
	case k.kind == 'r' && f[0] == "ok":
		c.h.Step(hold.Event{Kind: hold.Renewed, Sent: k.sent}, w.instant(i))
	case k.kind == 'r':
		c.h.Step(hold.Event{Kind: hold.Gone, Cause: hold.ErrDeadline}, w.instant(i))
	default:
		w.over(i)
	}
}

func (w *world) over(i int) {
	c := &w.cl[i]
	*c = client{left: c.left, life: c.life}
}

// timeout makes a client give up a request, which stays on its way.
func (w *world) timeout(i int) {
	c := &w.cl[i]
	k := c.call
	c.call = nil
	switch k.kind {
	case 'a', 'c':
		c.phase = ends
		w.send(i, 'l')
	case 'r':
		c.h.Step(hold.Event{Kind: hold.Failed, Cause: hold.ErrDeadline}, w.instant(i))
	case 't':
	default:
		w.over(i)
	}
}

// hear takes a grant that the server has published. Its age is unknown, so it is confirmed.
func (w *world) hear(i, k int) {
	c := &w.cl[i]
	f := strings.Fields(c.inbox[k])
	c.inbox = slices.Delete(c.inbox, k, k+1)
	if f[1] == c.owner && c.phase == waits {
		c.token, c.phase = number(f[2]), confirms
		w.send(i, 'c')
	}
}

func (w *world) relies(i int) bool {
	return w.cl[i].phase == holds && explore.Relies(w.cl[i].h, w.instant(i))
}

// look judges what depends on the past, and drops what has no effect any more.
func (w *world) look() {
	for i := range w.b.clients {
		c := &w.cl[i]
		switch {
		case !w.relies(i):
		case c.token > w.top:
			w.top, w.topper = c.token, c.owner
		case c.owner != w.topper && w.b.losses == 0: // a loss ends the grants before it
			w.broken = "2: a client relies on a token that is not greater than an earlier one"
		}
	}
}

func (w *world) check() string {
	if w.broken != "" {
		return w.broken
	}
	for i := range w.b.clients {
		if w.b.losses > 0 || !w.relies(i) {
			continue
		}
		for k := range i {
			if w.relies(k) {
				return "1: two clients rely on the lock"
			}
		}
		all := w.n.Holders()
		if len(all) == 0 {
			return "5: a client relies on a lock that somebody else has ended"
		}
		if all[0].Owner != w.cl[i].owner || all[0].Token != w.cl[i].token {
			return "3: the lock is granted while another client relies on it"
		}
	}
	if w.b.fair > 0 && w.fair() > w.b.fair {
		return "6, 7: nobody has the name, and a waiter does not get it in time"
	}
	return ""
}

// fair is how many units a waiter waits for a name that nobody has, without further faults.
func (w *world) fair() int {
	wants := false
	for _, c := range w.cl[:w.b.clients] {
		if c.phase >= confirms {
			return 0
		}
		wants = wants || c.phase > idle
	}
	if !wants {
		return 0
	}
	n := w.copy()
	n.net = slices.DeleteFunc(n.net, func(r sending) bool { k := n.cl[r.who].call; return k == nil || k.seq != r.seq })
	for units := 0; units <= w.b.fair; units++ {
		for range 6 {
			for i := range n.b.clients {
				switch c := &n.cl[i]; {
				case c.call != nil:
					n.do(i)
				case len(c.inbox) > 0:
					n.hear(i, 0)
				case c.phase == waits:
					n.send(i, 't')
				}
				if n.cl[i].phase == holds {
					return units
				}
			}
		}
		if !slices.ContainsFunc(n.cl[:n.b.clients], func(c client) bool { return c.phase > idle }) {
			return 0 // the wait has ended with an error
		}
		n.pass()
	}
	return w.b.fair + 1
}

// key makes equal what has the same future. Tokens and tickets are the server's time, which is in it.
func (w *world) key(b []byte) []byte {
	num := func(v int64) { b = binary.AppendVarint(b, v) }
	text := func(s string) { b = append(append(b, s...), 0) }
	num(w.n.Now)
	for _, key := range slices.Sorted(maps.Keys(w.n.Keys)) {
		k := w.n.Keys[key]
		text(key)
		text(k.Text)
		num(k.Until)
		for _, m := range slices.Sorted(maps.Keys(k.Set)) {
			text(m)
			num(k.Set[m])
		}
	}
	b = append(b, byte(w.timeouts), byte(w.crashes), byte(w.losses), byte(w.delays), byte(w.copies), byte(w.late))
	num(w.granted)
	num(w.top)
	text(w.topper)
	text(w.broken)
	for _, r := range w.net {
		b = append(b, map[bool]byte{true: 1}[slices.Contains(w.ended, r.owner)])
		k := w.cl[r.who].call
		flags := r.kind
		if k != nil && k.seq == r.seq {
			flags |= 128
		}
		b = append(b, byte(r.who), flags)
		text(r.owner)
		for _, v := range []int64{r.token, r.until, r.ticket} {
			num(v)
		}
		b = append(b, map[bool]byte{true: 1}[r.back])
	}
	for i := range w.b.clients {
		c := &w.cl[i]
		b = append(b, c.phase, byte(c.left), byte(c.life), byte(c.renewed), byte(len(c.inbox)), map[bool]byte{true: 1}[c.missing])
		text(c.owner)
		num(c.token)
		num(c.ticket)
		for _, m := range c.inbox {
			text(m)
		}
		if k := c.call; k != nil {
			b = append(b, k.kind)
			text(k.answer)
			num(int64(k.sent.Mono))
		} else {
			b = append(b, 0)
		}
		if c.phase == holds {
			b = explore.HoldKey(b, c.h, w.instant(i))
		}
	}
	return b
}

func (w *world) show(a explore.Action) string {
	line := fmt.Sprintf("%-4s ", time.Duration(w.now)*time.Millisecond)
	switch a.Kind % kLate {
	case kTick, kLose:
		line += what[a.Kind%kLate]
	case kExec, kCopy:
		line += fmt.Sprintf("%s request %d", what[a.Kind%kLate], a.Arg+1)
	default:
		line += fmt.Sprintf("%c %s", 'A'+a.Who, what[a.Kind%kLate])
	}
	held := ""
	for _, h := range w.n.Holders() {
		held += fmt.Sprintf("%s/%d", h.Owner, h.Token-epoch*1000)
	}
	line = fmt.Sprintf("%-36s lock[%s] queue %d", line, held, len(w.n.waiting()))
	for i := range w.b.clients {
		if w.relies(i) {
			line += fmt.Sprintf("  %c RELIES", 'A'+i)
		}
	}
	return line
}

func modelOf(b bounds) explore.Model[*world] {
	if b.margin == 0 {
		b.margin = lasts*time.Millisecond/50 + 10*time.Millisecond
	}
	return explore.Model[*world]{
		Init: initial(&b), Copy: (*world).copy, Next: (*world).next, Key: (*world).key, Check: (*world).check, Show: (*world).show,
		Limit: 8_000_000,
	}
}

var drift = [most]float64{0.99, 1.01, 1}

// The bounds that are exhausted: the small ones by each run, the others with FENCELOCK_SLOW.
var explored = []explore.Bounds[bounds]{
	explore.Always("2 clients, 1 delay", bounds{clients: 2, acquires: 1, renews: 1, units: 4, delays: 1}),
	explore.Always("2 clients, 1 time-out", bounds{clients: 2, acquires: 1, renews: 1, units: 3, timeouts: 1}),
	explore.Always("2 clients, 1 crash; who waits gets in", bounds{clients: 2, acquires: 1, renews: 1, units: 4, crashes: 1, fair: 2}),
	explore.Slowly("2 clients, clocks 2 % apart", bounds{clients: 2, acquires: 1, renews: 1, units: 5, delays: 1, rates: drift}),
	explore.Slowly("2 clients, 1 delay, 1 time-out, 1 crash", bounds{clients: 2, acquires: 1, renews: 1, units: 4, delays: 1, timeouts: 1, crashes: 1, fair: 2}),
	explore.Slowly("2 clients, 1 doubled request", bounds{clients: 2, acquires: 1, renews: 1, units: 3, copies: 1}),
	explore.Slowly("2 clients with 2 acquires, 1 late request, 1 doubled request", bounds{clients: 2, acquires: 2, renews: 1, units: 3, late: 1, copies: 1}),
	explore.Slowly("2 clients with 2 acquires, 1 late request, 2 time-outs, 1 crash", bounds{clients: 2, acquires: 2, renews: 1, units: 3, late: 1, timeouts: 2, crashes: 1}),
	explore.Slowly("3 clients, 1 late request, 1 time-out", bounds{clients: 3, acquires: 1, renews: 1, units: 3, late: 1, timeouts: 1}),
	explore.Slowly("3 clients, 1 late request, 1 crash", bounds{clients: 3, acquires: 1, renews: 1, units: 3, late: 1, crashes: 1}),
	explore.Slowly("2 clients, 1 loss of data", bounds{clients: 2, acquires: 1, renews: 1, units: 4, losses: 1}),
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey compares the key with whole states.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// TestExploreMargin takes away the margin of the hold.
func TestExploreMargin(t *testing.T) {
	explore.MustBreak(t, modelOf(bounds{clients: 2, acquires: 1, units: 4, margin: 1, rates: drift}))
}

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds[bounds]{
	explore.Always("3 clients, time-outs, crashes, doubled requests", bounds{clients: 3, acquires: 5, renews: 3, units: 100, delays: 30, timeouts: 5, crashes: 2, copies: 3}),
	explore.Always("the same, clocks 2 % apart", bounds{clients: 3, acquires: 5, renews: 3, units: 100, delays: 30, timeouts: 5, crashes: 2, copies: 3, rates: drift}),
	explore.Always("3 clients, losses of data", bounds{clients: 3, acquires: 5, renews: 3, units: 100, delays: 30, timeouts: 5, losses: 3}),
	explore.Always("2 clients, time-outs, crashes; who waits gets in", bounds{clients: 2, acquires: 5, renews: 3, units: 100, delays: 20, timeouts: 3, crashes: 2, fair: 4}), // dead places cost a unit each
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustMeet(t, modelOf(bounds{clients: 2, acquires: 5, renews: 3, units: 100, delays: 10, margin: 1, rates: drift}))
}
