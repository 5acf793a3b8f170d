package twin

import (
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
	unit  = 2 * time.Second // of the explored time, as long as a hand-over
	lasts = 2 * unit
	epoch = 1e15 // microseconds, of the server's clock
)

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
}

// A grant was published and has not arrived.
type grant struct {
	who   int
	owner string
	token int64
}

type world struct {
	explore.World[string]
	n       *Name
	net     []sending
	mail    []grant
	seq     int
	cl      [explore.MostClients]client
	granted int64    // the greatest token that was granted
	ended   []string // owners that have left or released
}

func (w *world) Copy() *world {
	n := *w
	n.net, n.mail = slices.Clone(w.net), slices.Clone(w.mail)
	for i := range n.cl {
		if k := n.cl[i].call; k != nil {
			c := *k
			n.cl[i].call = &c
		}
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

func clients(w *world) int  { return w.Clients }
func requests(w *world) int { return len(w.net) }
func grants(w *world) int   { return len(w.mail) }

var steps = []explore.Step[*world]{
	{Name: "the server executes request #", Of: requests,
		Then: func(w *world, i int) { w.exec(i, false) }},
	{Name: "the server executes a copy of request #", Of: requests, Fault: explore.Copy,
		Then: func(w *world, i int) { w.exec(i, true) }},
	{Name: "client # gets the answer", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].call != nil && w.cl[i].call.done },
		Then: (*world).answer},
	{Name: "client # is answered, and what it sends then, too", Of: clients, // this shortens traces and adds no state
		If:   func(w *world, i int) bool { return w.cl[i].call != nil && w.Late == 0 },
		Then: func(w *world, i int) { w.finish(i, 0) }},
	{Name: "client # stops waiting for the answer", Of: clients, Fault: explore.Timeout, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].call != nil },
		Then: (*world).timeout},
	{Name: "grant # is received", Of: grants, Sends: true,
		Then: (*world).hear},
	{Name: "grant # is lost", Of: grants, Fault: explore.Timeout,
		Then: func(w *world, i int) { w.mail = slices.Delete(w.mail, i, i+1) }},
	{Name: "client # acquires", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].phase == idle && w.cl[i].left > 0 },
		Then: (*world).acquire},
	{Name: "client # touches", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].phase == waits && w.cl[i].call == nil },
		Then: func(w *world, i int) { w.send(i, 't') }},
	{Name: "client # renews", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { c := &w.cl[i]; return c.holds() && w.RenewalDue(i, c.h, c.renewed) },
		Then: (*world).renew},
	{Name: "client # releases", Of: clients, Sends: true,
		If:   func(w *world, i int) bool { return w.cl[i].holds() },
		Then: (*world).release},
	{Name: "client # crashes", Of: clients, Fault: explore.Crash,
		If:   func(w *world, i int) bool { return w.cl[i].phase != idle },
		Then: func(w *world, i int) { w.over(i); w.cl[i].life++ }},
	{Name: "time passes", Fault: explore.Delay, While: (*world).busy,
		If:   func(w *world, _ int) bool { return w.Now < time.Duration(w.Units)*unit },
		Then: func(w *world, _ int) { w.pass() }},
	{Name: "the server loses its data", Fault: explore.Loss, // which takes a millisecond
		If:   func(w *world, _ int) bool { return len(w.n.Keys) > 0 },
		Then: func(w *world, _ int) { w.n.Keys = map[string]*Key{}; w.n.Now += 1000 }},
}

// holds reports whether a client has the lock, and neither renews nor releases it.
func (c *client) holds() bool { return c.phase == holds && c.call == nil }

// busy reports whether a client waits for an answer: time that passes then is a delay.
func (w *world) busy() bool {
	return slices.ContainsFunc(w.cl[:], func(c client) bool { return c.call != nil })
}

func (w *world) pass() {
	w.Now += unit
	w.n.Now = epoch + w.Now.Microseconds()
	w.n.Sweep()
}

func (w *world) acquire(i int) {
	c := &w.cl[i]
	c.left--
	c.owner, c.phase = fmt.Sprintf("o%d.%d.%d", i, c.life, c.left), asks
	w.send(i, 'a')
}

func (w *world) renew(i int) {
	c := &w.cl[i]
	c.renewed++
	c.h.Step(hold.Event{Kind: hold.Tick}, w.Instant(i))
	w.send(i, 'r')
}

func (w *world) release(i int) {
	c := &w.cl[i]
	c.h.Step(hold.Event{Kind: hold.Released}, w.Instant(i))
	c.phase = ends
	w.send(i, 'e')
}

func (w *world) send(i int, kind byte) {
	c := &w.cl[i]
	w.seq++
	until := w.n.Now + unit.Microseconds() - 1 // what follows in the model at once is a microsecond later
	r := sending{i, w.seq, kind, c.owner, c.token, until, c.ticket, c.missing}
	w.net = append(w.net, r)
	c.call = &call{sending: r, sent: w.Instant(i)}
}

// land executes and answers what was sent after a request, before anything else happens.
func (w *world) land(after int) {
	for i := range w.Clients {
		w.finish(i, after)
	}
}

// finish executes and answers what a client has sent after a request, and what it sends then.
func (w *world) finish(i, after int) {
	for k := w.cl[i].call; k != nil && k.seq > after; k = w.cl[i].call {
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
	n, q := w.n, Request{Owner: r.owner, Desc: fmt.Sprintf("cl%d x 0 1 %d 0 1 h -", r.who, lasts.Milliseconds()), Sent: "0", Until: r.until}
	before := w.stored()
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
		said = n.Renew(r.owner, r.token, lasts.Milliseconds(), false)
	case 'e':
		said = n.Release(r.owner, r.token, "id", 0)
	case 'l':
		said = n.Leave(q, r.until)
	}
	for _, m := range n.Said {
		f := strings.Fields(m)
		if who := int(f[0][2] - '0'); f[1] == "grant" && w.cl[who].phase != idle {
			w.mail = append(w.mail, grant{who, f[2], number(f[3])})
		}
	}
	n.Said = nil
	after, nobody := w.stored(), explore.Claim[string]{}
	if (r.kind == 'e' || r.kind == 'l') && !slices.Contains(w.ended, r.owner) {
		w.ended = append(slices.Clip(w.ended), r.owner)
	}
	owner := before == nobody || before == explore.Claim[string]{Owner: r.owner, Token: r.token}
	switch {
	case w.Losses == 0 && slices.Contains(w.ended, after.Owner):
		w.Broken = "4: a request acts after its owner has left or released"
	case after == before:
	case r.until < n.Now && (r.kind == 'a' || r.kind == 't'):
		w.Broken = "4: a request acts after its end"
	case !owner && (r.kind == 'e' || r.kind == 'r' || r.kind == 'c'):
		w.Broken = "5: somebody else ends an acquisition"
	case after != nobody && after.Token <= w.granted:
		w.Broken = "2: a token is not greater than that of an earlier grant"
	}
	w.granted = max(w.granted, after.Token)
	if k := w.cl[r.who].call; k != nil && k.seq == r.seq && !k.done {
		k.done, k.answer = true, said
	}
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
		c.h = hold.New(w.Terms(lasts), k.sent, lasts)
		if !c.h.Fresh(w.Instant(i)) {
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
		c.h, c.phase = hold.New(w.Terms(lasts), k.sent, lasts), holds
	case k.kind == 'r' && f[0] == "ok":
		c.h.Step(hold.Event{Kind: hold.Renewed, Sent: k.sent}, w.Instant(i))
	case k.kind == 'r':
		c.h.Step(hold.Event{Kind: hold.Gone, Cause: hold.ErrDeadline}, w.Instant(i))
	default:
		w.over(i)
	}
}

// over ends what a client does.
func (w *world) over(i int) {
	w.cl[i] = client{left: w.cl[i].left, life: w.cl[i].life}
	w.mail = slices.DeleteFunc(w.mail, func(g grant) bool { return g.who == i })
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
		c.h.Step(hold.Event{Kind: hold.Failed, Cause: hold.ErrDeadline}, w.Instant(i))
	case 't':
	default:
		w.over(i)
	}
}

// hear takes a grant that the server has published. Its age is unknown, so it is confirmed.
func (w *world) hear(k int) {
	g := w.mail[k]
	w.mail = slices.Delete(w.mail, k, k+1)
	if c := &w.cl[g.who]; g.owner == c.owner && c.phase == waits {
		c.token, c.phase = g.token, confirms
		w.send(g.who, 'c')
	}
}

// claim returns what a client relies on.
func (w *world) claim(i int) (explore.Claim[string], bool) {
	c := &w.cl[i]
	return explore.Claim[string]{Owner: c.owner, Token: c.token}, c.phase == holds && explore.Relies(c.h, w.Instant(i))
}

// stored returns whom the server has granted the lock.
func (w *world) stored() (c explore.Claim[string]) {
	for _, h := range w.n.Holders() { // at most one
		c = explore.Claim[string]{Owner: h.Owner, Token: h.Token}
	}
	return c
}

func (w *world) Look() { w.Rely(w.claim) }

func (w *world) Check() string { return w.Judge(w.claim, w.stored, w.fair) }

func (w *world) wants() bool {
	return slices.ContainsFunc(w.cl[:], func(c client) bool { return c.phase > idle })
}

// fair reports whether a waiter gets a name that nobody has, without further faults.
func (w *world) fair() bool {
	has := func(c client) bool { return c.phase >= confirms }
	if slices.ContainsFunc(w.cl[:], has) || !w.wants() {
		return true
	}
	n := w.Copy()
	n.net = slices.DeleteFunc(n.net, func(r sending) bool { k := n.cl[r.who].call; return k == nil || k.seq != r.seq })
	turn := func(i int) bool {
		c := &n.cl[i]
		switch at := slices.IndexFunc(n.mail, func(g grant) bool { return g.who == i }); {
		case c.call != nil:
			n.finish(i, 0)
		case at >= 0:
			n.hear(at)
		case c.phase == waits:
			n.send(i, 't')
		}
		return c.phase == holds
	}
	return explore.Wait{Clients: w.Clients, Units: w.Fair, Turns: 6, Wants: n.wants, Turn: turn, Pass: n.pass}.Ends()
}

// key makes equal what has the same future. Tokens and tickets are the server's time, which is in it.
func (w *world) Key(k *explore.Key) {
	k.Num(w.n.Now, w.granted, w.Top.Token)
	k.Text(w.Top.Owner, w.Broken)
	k.Faults(w.Left)
	for _, name := range slices.Sorted(maps.Keys(w.n.Keys)) {
		v := w.n.Keys[name]
		k.Text(name, v.Text)
		k.Num(v.Until)
		for _, m := range slices.Sorted(maps.Keys(v.Set)) {
			k.Text(m)
			k.Num(v.Set[m])
		}
	}
	for _, r := range w.net {
		c := w.cl[r.who].call
		k.Flag(slices.Contains(w.ended, r.owner), c != nil && c.seq == r.seq, r.back)
		k.Text(r.owner)
		k.Num(int64(r.who), int64(r.kind), r.token, r.until, r.ticket)
	}
	for i := range w.Clients {
		c := &w.cl[i]
		k.Flag(c.missing, c.call != nil)
		k.Text(c.owner)
		k.Num(int64(c.phase), int64(c.left), int64(c.life), int64(c.renewed), c.token, c.ticket)
		for _, g := range w.mail {
			if g.who == i {
				k.Text(g.owner)
				k.Num(g.token)
			}
		}
		if c.call != nil {
			k.Text(c.call.answer)
			k.Num(int64(c.call.kind), int64(c.call.sent.Mono))
		}
		if c.phase == holds {
			k.Hold(c.h, w.Instant(i))
		}
	}
}

func (w *world) Show() string {
	return fmt.Sprintf("%s lock%v queue %d", w.Line(w.claim), w.stored(), len(w.n.waiting()))
}

func modelOf(b explore.Bounds) explore.Model[*world] {
	w := &world{World: explore.NewWorld[string](&b)}
	w.n = &Name{Now: epoch, Keys: map[string]*Key{}, Listening: map[string]bool{}, Counts: true, Retention: 86_400_000}
	for i := range b.Clients {
		w.cl[i].left = b.Acquires
		w.n.Listening[fmt.Sprint("cl", i)] = true
	}
	sent := func(w *world) int { return w.seq }
	return explore.Model[*world]{Init: w, Steps: steps, Limit: 8_000_000}.AtOnce(sent, (*world).land)
}

var explored = []explore.Bounds{
	{Name: "2 clients, 1 delay", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Delays: 1},
	{Name: "2 clients, 1 time-out", Clients: 2, Acquires: 1, Renews: 1, Units: 3, Timeouts: 1},
	{Name: "2 clients, 1 crash; who waits gets in", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Crashes: 1, Fair: 2},
	{Slow: true, Name: "2 clients, clocks 2 % apart", Clients: 2, Acquires: 1, Renews: 1, Units: 5, Delays: 1, Rates: explore.Drift},
	{Slow: true, Name: "2 clients, 1 delay, 1 time-out, 1 crash", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Delays: 1, Timeouts: 1, Crashes: 1, Fair: 2},
	{Slow: true, Name: "2 clients, 1 doubled request", Clients: 2, Acquires: 1, Renews: 1, Units: 3, Copies: 1},
	{Slow: true, Name: "2 clients with 2 acquires, 1 late request, 1 doubled request", Clients: 2, Acquires: 2, Renews: 1, Units: 3, Late: 1, Copies: 1},
	{Slow: true, Name: "2 clients with 2 acquires, 1 late request, 2 time-outs, 1 crash", Clients: 2, Acquires: 2, Renews: 1, Units: 3, Late: 1, Timeouts: 2, Crashes: 1},
	{Slow: true, Name: "3 clients, 1 late request, 1 time-out", Clients: 3, Acquires: 1, Renews: 1, Units: 3, Late: 1, Timeouts: 1},
	{Slow: true, Name: "3 clients, 1 late request, 1 crash", Clients: 3, Acquires: 1, Renews: 1, Units: 3, Late: 1, Crashes: 1},
	{Slow: true, Name: "2 clients, 1 loss of data", Clients: 2, Acquires: 1, Renews: 1, Units: 4, Losses: 1},
}

func TestExplore(t *testing.T) { explore.Exhaust(t, explored, modelOf) }

// TestExploreKey: states with one key have the same future.
func TestExploreKey(t *testing.T) { explore.CheckKeys(t, explored, modelOf) }

// TestExploreMargin takes away the margin of the hold.
func TestExploreMargin(t *testing.T) {
	explore.MustBreak(t, explore.Run(modelOf(explore.Bounds{Clients: 2, Acquires: 1, Units: 4, Margin: 1, Rates: explore.Drift}), 2))
}

// walked are bounds that are too large to be exhausted.
var walked = []explore.Bounds{
	{Name: "3 clients, time-outs, crashes, doubled requests", Clients: 3, Acquires: 5, Renews: 3, Units: 100, Delays: 30, Timeouts: 5, Crashes: 2, Copies: 3},
	{Name: "the same, clocks 2 % apart", Clients: 3, Acquires: 5, Renews: 3, Units: 100, Delays: 30, Timeouts: 5, Crashes: 2, Copies: 3, Rates: explore.Drift},
	{Name: "3 clients, losses of data", Clients: 3, Acquires: 5, Renews: 3, Units: 100, Delays: 30, Timeouts: 5, Losses: 3},
	{Name: "2 clients, time-outs, crashes; who waits gets in", Clients: 2, Acquires: 5, Renews: 3, Units: 100, Delays: 20, Timeouts: 3, Crashes: 2, Fair: 6}, // a lease costs two units, and each of up to four dead places one
}

func TestWalk(t *testing.T) { explore.Roam(t, walked, modelOf) }

// TestWalkMargin takes away the margin of the hold.
func TestWalkMargin(t *testing.T) {
	explore.MustBreak(t, explore.Walk(modelOf(explore.Bounds{Clients: 2, Acquires: 5, Renews: 3, Units: 100, Delays: 10, Margin: 1, Rates: explore.Drift}), 1, 1_000_000, 2))
}

// hunts are the bounds within which mutants are found. They need not be exhausted.
var hunts = map[string]explore.Bounds{
	"plain":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5},
	"again":     {Clients: 2, Acquires: 2, Renews: 1, Units: 4, Delays: 1},
	"rates":     {Clients: 2, Acquires: 1, Units: 4, Rates: explore.Drift},
	"delays":    {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Delays: 2},
	"time-outs": {Clients: 2, Acquires: 2, Renews: 1, Units: 5, Delays: 1, Timeouts: 2},
	"copies":    {Clients: 2, Acquires: 1, Renews: 1, Units: 4, Timeouts: 1, Copies: 1, Late: 2},
	"crash":     {Clients: 2, Acquires: 1, Renews: 1, Units: 5, Crashes: 1, Fair: 2},
}

// TestExploreHunt explores the bounds that a mutant names.
func TestExploreHunt(t *testing.T) { explore.HuntWithin(t, hunts, modelOf) }

// TestExploreMutants changes the rules of the scripts and the hold.
func TestExploreMutants(t *testing.T) {
	explore.Hunt(t, "../../..", []explore.Mutant{
		explore.Change("a token does not grow", "rules.go", "plain", "token := max(n.Now, number(last)+1)", "token := max(number(last), 1)"),
		explore.Change("anybody ends a holder", "rules.go", "again", `if !strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)) {`, "if false {"),
		explore.Change("anybody renews a holder", "rules.go", "again", `case n.mode == "x" && strings.HasPrefix(n.text, fmt.Sprintf("%s%s %d ", format, owner, token)):`, `case n.mode == "x":`),
		explore.Change("a holder is anybody's", "rules.go", "plain", `rest, own := strings.CutPrefix(n.text, format+owner+" ")`, "rest, own := strings.CutPrefix(n.text, format)\n\t_, rest, _ = strings.Cut(rest, \" \")"),
		explore.Change("the lock ends after half a lease", "rules.go", "plain", "n.Put(Lock, n.text, ttl)", "n.Put(Lock, n.text, ttl/2)"),
		explore.Change("the lock of a dead holder stays", "rules.go", "crash", "n.Put(Lock, n.text, ttl)", "n.Put(Lock, n.text, 100*ttl)"),
		explore.Change("a renewal gives a quarter of a lease", "rules.go", "plain", "n.end(Lock, n.ms()+ttl)\n\t\treturn true\n\tcase n.mode == \"s\"", "n.end(Lock, n.ms()+ttl/4)\n\t\treturn true\n\tcase n.mode == \"s\""),
		explore.Change("keys end a hand-over early", "state.go", "plain", "k.Until > 0 && k.Until <= n.ms()", "k.Until > 0 && k.Until <= n.ms()+2000"),
		explore.Change("a late request is served", "scripts.go", "time-outs", "if q.Until < n.Now {\n\t\treturn late", "if false {\n\t\treturn late"),
		explore.Change("a late touch is served", "scripts.go", "time-outs", "if until < n.Now {\n\t\treturn fmt.Sprintf(\"late %d\", n.Now)\n\t}\n\tn.speaks", "n.speaks"),
		explore.Change("a held name counts as untouched", "scripts.go", "plain", "return !n.there(Lock) && !n.there(Queue)", "return !n.there(Queue)"),
		explore.Change("a lease that is over is renewed", "scripts.go", "time-outs", "if n.mode != \"x\" || !n.extend(owner, token, ttl) {\n\t\treturn \"gone\"", "if n.mode == \"free\" {\n\t\tn.Put(Lock, fmt.Sprintf(\"%s%s %d cl0 x 0 1 %d 0 1 h -\", format, owner, token, ttl), ttl)\n\t} else if n.mode != \"x\" || !n.extend(owner, token, ttl) {\n\t\treturn \"gone\""),
		explore.Change("a renewal always succeeds", "scripts.go", "delays", "return \"gone\"\n\t}\n\treturn \"ok\" + left", "return \"ok\"\n\t}\n\treturn \"ok\" + left"),
		explore.Change("a release leaves no mark", "scripts.go", "copies", "	if had || late > 0 {\n\t\tn.mark(", "	if late > 0 {\n\t\tn.mark("),
		explore.Change("who leaves leaves no mark", "scripts.go", "copies", "\tn.mark(q.Owner, \"\", late)\n", ""),
	})
}
