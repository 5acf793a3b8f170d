package redislock_test

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/twin"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

//go:embed testdata/shim.lua
var shim string

// TestTwin: whatever is asked of the scripts, in whatever order, late, twice and by
// clocks that step, they answer, publish and leave behind what their twin in Go does. The sequences
// are the first ones and those that show a mutant.
func TestTwin(t *testing.T) {
	t.Parallel()
	n := 300
	if os.Getenv("FENCELOCK_SLOW") != "" {
		n = 100_000
	}
	s := newScene(t)
	server := &realLua{client: rueidisClient(t, rueidisOption(s.server.Addr())), scripts: twinScripts(nil)}
	var seeds []uint64
	for seed := range uint64(n) {
		seeds = append(seeds, seed)
	}
	for _, m := range mutants {
		if !slices.Contains(seeds, m.shows) {
			seeds = append(seeds, m.shows)
		}
	}
	for _, seed := range seeds {
		if err := newPlay(seed, server).run(t, 25); err != nil {
			t.Fatalf("sequence %d: %v", seed, err)
		}
	}
	t.Logf("%d sequences of calls without a difference", len(seeds))
}

// twinScripts returns the scripts as the shim runs them; edit may change their text.
func twinScripts(edit func(name, source string) string) map[string]*rueidis.Lua {
	scripts := map[string]*rueidis.Lua{}
	for name, source := range map[string]string{
		"acquire": redislock.AcquireScript.Source(), "gather": redislock.GatherScript.Source(),
		"release": redislock.ReleaseScript.Source(), "leave": redislock.LeaveScript.Source(), "touch": redislock.TouchScript.Source(), "touchall": redislock.TouchAllScript.Source(),
		"confirm": redislock.ConfirmScript.Source(), "renew": redislock.RenewScript.Source(), "resize": redislock.ResizeScript.Source(),
		"break": redislock.BreakScript.Source(), "adopt": redislock.AdoptScript.Source(),
		"set":   "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 'ok'",
		"del":   "for _, key in ipairs(ARGV) do redis.call('DEL', key) end return 'ok'",
		"ear":   "real.call(ARGV[1], ears, ARGV[2]) return 'ok'",
		"start": "real.call('SET', server, ARGV[1]) return 'ok'",
	} {
		if edit != nil {
			source = edit(name, source)
		}
		scripts[name] = rueidis.NewLuaScript(strings.Replace(shim, "--SCRIPT--", source, 1))
	}
	return scripts
}

// realLua is the scripts on a real server.
type realLua struct {
	client  rueidis.Client
	scripts map[string]*rueidis.Lua
}

// play is a sequence of calls, on the server and on the twin.
type play struct {
	*realLua
	*twin.Name
	rand     *rand.Rand
	keys     []string
	asked    []twin.Entry // requests so far
	log      []string
	version  int64       // of the last Resize
	releases int         // so many
	batches  int         // so many
	last     twin.Holder // was released last
	adopted  twin.Holder // was adopted last
	adopter  twin.Entry  // by this one
	permits  bool        // nobody asks for anything else
}

const millisecond = int64(1000)

func newPlay(seed uint64, server *realLua) *play {
	p := &play{realLua: server, rand: rand.New(rand.NewPCG(seed, 1)), keys: []string{twin.Lock}, Name: &twin.Name{
		Now: 1_700_000_000_000_000, Keys: map[string]*twin.Key{}, Listening: map[string]bool{}, Counts: seed%4 != 0, Retention: 600_000, Incarnation: "0a0b",
	}}
	p.permits = seed%7 == 3
	if seed%5 == 0 {
		p.Quarantine, p.keys = 3000, append(p.keys, twin.Marker)
	}
	return p
}

// run plays so many steps, and returns how the two differ if they do.
func (p *play) run(t testing.TB, steps int) error {
	t.Helper()
	if err := p.client.Do(t.Context(), p.client.B().Flushdb().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := p.same(t, "start", "ok", nil, "run_id:0a\nmaster_replid:0b\n"); err != nil {
		return err
	}
	for _, client := range []string{"c1", "c2", "c3"} {
		p.Listening[client] = true
		if err := p.same(t, "ear", "ok", nil, "SADD", "fencelock:2:"+client); err != nil {
			return err
		}
	}
	for range steps {
		p.tick()
		if err := p.step(t); err != nil {
			return fmt.Errorf("%w\nafter:\n%s", err, strings.Join(p.log, "\n"))
		}
	}
	return nil
}

// tick lets time pass, or sets the clock.
func (p *play) tick() {
	steps := []int64{0, 0, 1, 7, 40, 250, 600, 1000, 2100, 2100, 9000, 61_000}
	p.Now += millisecond*steps[p.rand.IntN(len(steps))] + p.rand.Int64N(3)
	switch p.rand.IntN(60) {
	case 0:
		p.Now -= 3_600_000 * millisecond
	case 1:
		p.Now -= 1500 * millisecond
	}
}

// same makes a call on the server and compares with what the twin said.
func (p *play) same(t testing.TB, script, answer string, keys []string, args ...string) error {
	t.Helper()
	p.log = append(p.log, fmt.Sprintf("%d %s %q", p.Now, script, args))
	args = append(slices.Clone(args), fmt.Sprint(p.Now/1_000_000), fmt.Sprint(p.Now%1_000_000))
	if keys == nil {
		keys = p.keys
	}
	got, err := p.scripts[script].Exec(t.Context(), p.client, keys, args).AsStrSlice()
	if err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}
	p.Sweep()
	want := []string{answer, strings.Join(p.Said, "\n"), p.Dump()}
	for i, what := range []string{"answers", "publishes", "leaves"} {
		if got[i] != want[i] {
			return fmt.Errorf("%s %s\n%s\nthe twin\n%s", script, what, got[i], want[i])
		}
	}
	return nil
}

// args begins the arguments of most scripts.
func (p *play) args(args ...any) []string {
	counts := 0
	if p.Counts {
		counts = 1
	}
	list := []string{"fencelock:2:", fmt.Sprintf("%d %d %d", p.Retention, counts, p.Quarantine)}
	for _, a := range args {
		list = append(list, fmt.Sprint(a))
	}
	return list
}

func (p *play) chance(in int) bool { return p.rand.IntN(in) == 0 }

// request makes a new request, or takes an old one.
func (p *play) request() twin.Entry {
	if len(p.asked) > 0 && p.chance(3) {
		return p.asked[p.rand.IntN(len(p.asked))]
	}
	pick := func(list ...string) string { return list[p.rand.IntN(len(list))] }
	mode, limit, client := pick("x", "x", "s"), "0 1", pick("c1", "c2", "c3")
	if p.permits {
		mode, limit = "s", "5 1"
	} else if mode == "s" {
		limit = pick("0 1", "2 1", "2 1", "5 1", "5 2", "5 4")
	}
	minHold := pick("0", "0", "0", "700", "3000")
	if mode == "s" { // refused with a minimum hold
		minHold = "0"
	}
	desc := fmt.Sprintf("%s %s %s %s %s 1 host note", client, mode, limit, pick("100", "1000", "30000", "60000"), minHold)
	e := twin.Entry{Request: twin.Request{Owner: fmt.Sprintf("o%d", len(p.asked)), Desc: desc}}
	p.asked = append(p.asked, e)
	return e
}

// until is when a request is served at the latest: mostly soon.
func (p *play) until() int64 {
	if p.chance(30) {
		return p.Now - 1
	}
	return p.Now + 500*millisecond
}

// late is until when a late try must not be served: mostly there is none.
func (p *play) late() int64 {
	if p.chance(4) {
		return p.Now + p.rand.Int64N(3000)*millisecond
	}
	return 0
}

// holder is one of the holders, or somebody else.
func (p *play) holder() (h twin.Holder) {
	h = twin.Holder{Owner: "o0", Token: 1_700_000_000_000_001, Shared: p.chance(2)}
	if list := p.Holders(); len(list) > 0 && !p.chance(6) {
		h = list[p.rand.IntN(len(list))]
		if p.chance(12) {
			h.Owner = "o0"
		}
	}
	return h
}
