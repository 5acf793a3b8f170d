package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/sim"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

// The simulator's node is a model of the scripts. Here random sequences of requests
// run on both, and every answer and all that the node remembers is compared. The
// scripts get the time and the incarnation as keys, so that both live in one time,
// which passes as the sequence says; and what they publish goes to a list.
const (
	fakeTime = "{ string.match(KEYS[2], '^(%d+)(%d%d%d%d%d%d)$') }"
	fakeInfo = "('master_replid:' .. KEYS[3])"
	fakeTell = "redis.call('RPUSH', 'news', text)"
)

func faked(text string) string {
	return strings.NewReplacer(
		"redis.call('TIME')", fakeTime,
		"redis.call('INFO', 'replication')", fakeInfo,
		"redis.pcall('PUBLISH', CHANNEL, text)", fakeTell,
	).Replace(text)
}

// twins are a server and the model of it.
type twins struct {
	*rand.Rand
	engines [2]*redlock.Engine
	which   int // of them asks
	server  func(args ...string) string
	model   sim.Node
	now     int64 // microseconds
	life    uint32
	tokens  []int64
	steps   []string // what was done, for people
}

const (
	twinMaxTTL = 100 * time.Second
	twinTTL    = 65_000 // milliseconds; what ends by the server's clock ends 5 s from where time stops
	second     = int64(1_000_000)
)

// TestTwins runs the first 300 sequences and those that show a change of the scripts, with
// FENCELOCK_SLOW set 100,000.
func TestTwins(t *testing.T) {
	t.Parallel()
	n := uint64(300)
	if os.Getenv("FENCELOCK_SLOW") != "" {
		n = 100_000
	}
	w := startNodes(t, 3)
	pair := twinEngines(t, w, faked)
	do := commands(t, w[0])
	var seeds []uint64
	for seed := range n {
		seeds = append(seeds, seed)
	}
	for _, c := range changed {
		if !slices.Contains(seeds, c.shows) {
			seeds = append(seeds, c.shows)
		}
	}
	for _, seed := range seeds {
		if err := compare(pair, do, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d sequences of calls without a difference", len(seeds))
}

// twinEngines are two that disagree about MaxTTL.
func twinEngines(t *testing.T, w world, edit func(string) string) (pair [2]*redlock.Engine) {
	for i := range pair {
		pair[i] = open(t, w.addrs(), redlock.Config{MaxTTL: twinMaxTTL * time.Duration(i+1)})
		pair[i].Edit(edit)
	}
	return pair
}

// commands returns what runs commands on a server.
func commands(t *testing.T, r *redistest.Redis) func(args ...string) string {
	client, err := newClient(r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return func(args ...string) string {
		text, err := client.Do(context.Background(), client.B().Arbitrary(args...).Build()).ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatalf("%.30q: %v", args, err)
		}
		return text
	}
}

// compare plays a sequence, and says where server and model differ. Keys end by the
// server's own clock, so a sequence that took long is played again.
func compare(pair [2]*redlock.Engine, do func(args ...string) string, seed uint64) error {
	for {
		p := &twins{Rand: rand.New(rand.NewPCG(seed, 1)), engines: pair, server: do, now: 1_700_000_000 * second, model: sim.Node{Ahead: second / 2}}
		do("FLUSHALL")
		begun := time.Now()
		err := p.play()
		if time.Since(begun) < 3*time.Second {
			if err != nil {
				return fmt.Errorf("%w, after\n%s", err, strings.Join(p.steps, "\n"))
			}
			return nil
		}
	}
}

func (p *twins) play() error {
	if p.IntN(4) > 0 { // else it is new
		if err := p.same("init", "ok"); err != nil {
			return err
		}
		p.model.Declare(0, twinMaxTTL.Microseconds())
	}
	for range 10 + p.IntN(30) {
		if err := p.step(); err != nil {
			return err
		}
		if got, want := p.remembered(), p.expected(); got != want {
			return fmt.Errorf("the server remembers\n%s\nthe model\n%s", got, want)
		}
	}
	return nil
}

func (p *twins) step() error {
	switch k := p.IntN(100); {
	case k < 45:
		return p.ask()
	case k < 53:
		return p.raise()
	case k < 61:
		return p.renew()
	case k < 67:
		return p.repair()
	case k < 83:
		return p.release()
	case k < 88:
		return p.leave()
	case k < 90:
		p.model.Reincarnate()
		p.life++
		p.steps = append(p.steps, "another incarnation")
	default:
		p.pass([]int64{2_000, 7_000, 20_000, 10 * second, 20 * second, 50 * second, 170 * second}[p.IntN(7)])
	}
	return nil
}

// pass lets time pass: for the clock, and for the keys, which would outlive it.
func (p *twins) pass(d int64) {
	p.now += d
	p.server("EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do
		local left = redis.call('PTTL', k)
		if left > 0 then redis.call('PEXPIRE', k, left - ARGV[1]) end
	end`, "0", strconv.FormatInt(d/1000, 10))
	p.steps = append(p.steps, fmt.Sprintf("%v pass", time.Duration(d)*time.Microsecond))
}

// replid is how the server names a life.
func replid(life uint32) string { return fmt.Sprintf("%08x%032x", life+1, 0) }

func (p *twins) run(script string, args ...string) string {
	p.steps = append(p.steps, fmt.Sprint(p.now, " ", script, " ", args))
	text, err := p.engines[p.which].Run(context.Background(), script, "x", []string{strconv.FormatInt(p.now, 10), replid(p.life)}, args...)
	if err != nil {
		return "error " + err.Error()
	}
	return text
}

func (p *twins) same(script, want string, args ...string) error {
	if got := p.run(script, args...); strings.TrimSpace(got) != want {
		return fmt.Errorf("%s: the server says %q, the model %q", script, got, want)
	}
	return nil
}

func (p *twins) owner() sim.Owner   { return sim.Owner(1 + p.IntN(4)) }
func (p *twins) caller() sim.Caller { return sim.Caller(1 + p.IntN(3)) }
func (p *twins) shared() bool       { return p.IntN(2) == 0 }

func mode(shared bool) string {
	if shared {
		return "s"
	}
	return "x"
}

func (p *twins) token() int64 {
	if len(p.tokens) == 0 || p.IntN(8) == 0 {
		return p.now
	}
	return p.tokens[p.IntN(len(p.tokens))] + p.Int64N(3) - 1
}

// by is a time after which a request does nothing.
func (p *twins) by() int64 {
	if p.IntN(10) == 0 {
		return p.now - 1 - p.Int64N(second)
	}
	return p.now + p.Int64N(6)*10*second + 5*second
}

func id(n int64) string { return strconv.FormatInt(n, 10) }

func (p *twins) ask() error {
	p.which = p.IntN(2)
	defer func() { p.which = 0 }()
	r := sim.Request{
		Owner: p.owner(), Proposed: p.now + []int64{-3600 * second, 0, second / 10, second / 10, second / 3, 3600 * second}[p.IntN(6)],
		TTL: twinTTL * 1000, By: p.by(), MaxTTL: twinMaxTTL.Microseconds() * int64(p.which+1),
	}
	args := []string{id(int64(r.Owner)), id(twinTTL), id(r.Proposed), id(r.By), "1 host note"}
	if p.IntN(2) == 0 {
		r.Shared = p.shared()
		r.Wait = sim.Wait{Joins: p.IntN(2) == 0, Caller: p.caller(), Waited: p.Int64N(9 * second)}
		call := []string{"-", "-", "first", "next", "break", "adopt"}[p.IntN(6)]
		r.Wait.First, r.Wait.Next, r.Forced = call == "first", call == "next", call == "break"
		waited := int64(-1)
		if r.Wait.Joins {
			waited = r.Wait.Waited
		}
		args = append(args, mode(r.Shared), id(waited), id(int64(r.Wait.Caller)), call, "why")
		if r.Adopts = call == "adopt"; r.Adopts || r.Forced && p.IntN(2) == 0 {
			r.Only = p.owner()
			args = append(args, id(int64(r.Only)))
		}
	}
	got := p.run("ask", args...)
	a := p.model.Ask(r, p.now)
	words := strings.Fields(got)
	rest, server := "", replid(p.life)[:16]
	switch a.Status {
	case sim.Granted:
		p.tokens = append(p.tokens, a.Token)
		rest = fmt.Sprintf("%d %d", a.Token, a.Floor)
	case sim.Held:
		if len(words) > 3 {
			words = words[:3] // for how long, and who, is compared as what the node remembers
		}
	case sim.Quarantined, sim.Told:
		rest = id(a.Left)
	}
	word := [...]string{"granted", "held", "quarantine", "nodes", "late", "told", "gone"}[a.Status]
	if a.Status == sim.Late {
		server = "-"
	}
	if want := strings.TrimSpace(fmt.Sprintf("%s %d %s %s", word, p.now, server, rest)); strings.Join(words, " ") != want {
		return fmt.Errorf("ask: the server says %q, the model %q", got, want)
	}
	return nil
}

func (p *twins) ok(yes bool, no string) string {
	if yes {
		return "ok " + replid(p.model.Life())[:16]
	}
	return no
}

func (p *twins) raise() error {
	o, token, minHold := p.owner(), p.token(), []int64{0, 0, 30_000}[p.IntN(3)]
	got := strings.Replace(p.run("raise", id(int64(o)), id(token), id(minHold)), "low", "gone", 1)
	if want := p.ok(p.model.Raise(o, token, minHold*1000, p.now), "gone"); got != want {
		return fmt.Errorf("raise: the server says %q, the model %q", got, want)
	}
	return nil
}

func (p *twins) renew() error {
	o, token := p.owner(), p.token()
	s := p.model.Renew(o, token, twinTTL*1000, p.now)
	return p.same("renew", p.ok(s == quorum.Renewed, map[quorum.Standing]string{quorum.Free: "free", quorum.Taken: "taken"}[s]),
		id(int64(o)), id(token), "1", id(twinTTL))
}

func (p *twins) repair() error {
	o, token, shared, by := p.owner(), p.token(), p.shared(), p.by()
	got := strings.Replace(p.run("repair", id(int64(o)), id(token), mode(shared), id(twinTTL), id(by), "1 host note"), "late", "taken", 1)
	if want := map[bool]string{true: "ok", false: "taken"}[p.model.Repair(o, token, shared, twinTTL*1000, by, p.now)]; got != want {
		return fmt.Errorf("repair: the server says %q, the model %q", got, want)
	}
	return nil
}

func (p *twins) release() error {
	r := sim.Ending{Owner: p.owner()}
	voice := p.IntN(3)
	r.Keep, r.Aloud = voice > 0, voice == 2
	args := []string{id(int64(r.Owner)), "0", id(int64(voice))}
	if p.IntN(2) == 0 {
		r.By, r.Failed = p.by(), p.IntN(2) == 0
		args = append(args, id(r.By), map[bool]string{true: "1", false: "0"}[r.Failed])
	}
	end, told := p.model.Release(r, p.now)
	if err := p.same("release", [...]string{"gone", "ok", "freed"}[end], args...); err != nil {
		return err
	}
	return p.news(told)
}

func (p *twins) leave() error {
	c := p.caller()
	told := p.model.GiveUp(c, p.now)
	if err := p.same("leave", "ok", id(int64(c))); err != nil {
		return err
	}
	return p.news(told)
}

// news compares who was told that the name is free.
func (p *twins) news(told sim.Call) error {
	want := ""
	if told != sim.Nobody {
		want = "released " + told.String() + " lock:x"
	}
	got := p.server("EVAL", "local n = redis.call('LRANGE', 'news', 0, -1); redis.call('DEL', 'news'); local s = ''; "+
		"for _, w in ipairs(n) do if string.sub(w, 1, 4) ~= 'lost' then s = s .. w end end; return s", "0")
	if got != want {
		return fmt.Errorf("the server tells %q, the model %q", got, want)
	}
	return nil
}

// remembered is what the server remembers of the name, as one text.
func (p *twins) remembered() string {
	return p.server("EVAL", `
local now, out = tonumber(ARGV[1]), {}
local ms = math.floor(now / 1000)
local function add(...) table.insert(out, table.concat({...}, ' ')) end
local text = redis.call('GET', 'lock:x')
local seats = {}
if text == 'fencelock shared 0' then
  local z = redis.call('ZRANGE', 'shared:{lock:x}', 0, -1, 'WITHSCORES')
  for i = 1, #z, 2 do
    if tonumber(z[i + 1]) > ms then
      table.insert(seats, z[i] .. ' ' .. string.format('%d', redis.call('ZSCORE', 'tokens:{lock:x}', z[i])) .. ' s ' .. string.format('%d', (z[i + 1] - ms + 4000) / 10000))
    end
  end
elseif text then
  local o, t = string.match(text, '^fencelock (%S+) (%S+)')
  table.insert(seats, o .. ' ' .. t .. ' x ' .. string.format('%d', (redis.call('PTTL', 'lock:x') + 4000) / 10000))
end
table.sort(seats)
for _, s in ipairs(seats) do add('seat', s) end
local token, _, first, notbefore = string.match(redis.call('GET', 'fence:{lock:x}') or '0 0 - 0', '^(%d+) (%d+) (%S+) (%d+)$')
add('fence', token, first, notbefore)
local q = redis.call('ZRANGE', 'queue:{lock:x}', 0, -1, 'WITHSCORES')
for i = 1, #q, 2 do
  local till, mode = string.match(redis.call('HGET', 'callers:{lock:x}', q[i]) or '- -', '^(%S+) (%S+)')
  add('waits', q[i], mode, string.format('%d', q[i + 1]), till)
end
local bars = redis.call('KEYS', 'fence:{lock:x}/*')
table.sort(bars)
for _, b in ipairs(bars) do add('bar', string.sub(b, 16)) end
return table.concat(out, '\n')`, "0", strconv.FormatInt(p.now, 10))
}

// expected is what the model remembers.
func (p *twins) expected() string {
	var out, seats, bars []string
	for _, s := range p.model.Seats {
		if s.Until > p.now {
			seats = append(seats, fmt.Sprintf("seat %d %d %s %d", s.Owner, s.Token, mode(p.model.Shared), ((s.Until-p.now)/1000+4000)/10_000))
		}
	}
	slices.Sort(seats)
	out = append(out, seats...)
	out = append(out, fmt.Sprintf("fence %d %s %d", p.model.Fence, p.model.First(), p.model.NotBefore))
	out = append(out, p.model.Line(p.now)...)
	for _, b := range p.model.Bars {
		if b.Until > p.now {
			bars = append(bars, fmt.Sprintf("bar %d", b.Owner))
		}
	}
	slices.Sort(bars)
	return strings.Join(append(out, slices.Compact(bars)...), "\n")
}
