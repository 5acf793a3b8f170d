package redlock_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/sim"
	"github.com/fencelock/fencelock/redlock"
	"pgregory.net/rapid"
)

// TestModel runs random requests on a real server and on the simulator's node, and
// compares the answers: what the simulator proves holds for the scripts.
func TestModel(t *testing.T) {
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		p := &pair{engine: e, name: "model" + strconv.Itoa(round), model: sim.Node{Ahead: 500_000}}
		t.Repeat(map[string]func(*rapid.T){
			"ask": p.ask, "raise": p.raise, "renew": p.renew, "repair": p.repair, "release": p.release,
		})
	})
}

// pair is a name on a server, and its model.
type pair struct {
	engine *redlock.Engine
	name   string
	model  sim.Node
	tokens []int64 // that the server has granted
}

const modelTTL = 3600 // seconds: no lease ends by itself

func (p *pair) run(t *rapid.T, script string, args ...string) []string {
	words, err := p.engine.Run(t.Context(), script, p.name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return words
}

func owner(t *rapid.T) sim.Owner { return sim.Owner(rapid.IntRange(1, 3).Draw(t, "owner")) }

func (p *pair) token(t *rapid.T) int64 {
	if len(p.tokens) == 0 {
		p.tokens = append(p.tokens, time.Now().UnixMicro())
	}
	return rapid.SampledFrom(p.tokens).Draw(t, "token") + rapid.Int64Range(-1, 1).Draw(t, "off")
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// ask lets the server tell the time: it shows in the token, if it matters.
func (p *pair) ask(t *rapid.T) {
	o, shared := owner(t), rapid.Bool().Draw(t, "shared")
	begun := time.Now().UnixMicro()
	proposed := begun + rapid.SampledFrom([]int64{-3_600_000_000, 0, 200_000, 400_000, 3_600_000_000}).Draw(t, "proposal")
	mode := map[bool]string{true: "s", false: "x"}[shared]
	got := p.run(t, "ask", fmt.Sprint(o), mode, decimal(modelTTL*1000), decimal(proposed), "0", "", "1 host note", "0", "", "-")
	ended := time.Now().UnixMicro()
	if got[0] == "held" {
		got = got[:1]
	}
	clocks := []int64{begun, ended}
	if got[0] == "granted" {
		token, _ := strconv.ParseInt(got[1], 10, 64)
		p.tokens = append(p.tokens, token)
		clocks = append(clocks, token, token-p.model.Ahead)
	}
	var wants [][]string
	for _, now := range clocks {
		if now < begun || now > ended {
			continue
		}
		model := p.model
		model.Seats = slices.Clone(model.Seats)
		a := model.Ask(sim.Request{Owner: o, Shared: shared, Proposed: proposed, TTL: modelTTL * 1_000_000, By: now}, now)
		want := []string{"held"}
		if a.Status == sim.Granted {
			want = []string{"granted", decimal(a.Token), decimal(a.Floor)}
		}
		if slices.Equal(got, want) {
			p.model = model
			return
		}
		wants = append(wants, want)
	}
	t.Fatalf("ask: the server says %q, the model one of %q", got, wants)
}

func (p *pair) agree(t *rapid.T, what, got, want string) {
	if got != want {
		t.Fatalf("%s: the server says %q, the model %q; model %+v", what, got, want, p.model)
	}
}

func (p *pair) raise(t *rapid.T) {
	o, token := owner(t), p.token(t)
	got := p.run(t, "raise", fmt.Sprint(o), decimal(token), "0")[0]
	if got == "low" {
		got = "gone"
	}
	want := map[bool]string{true: "ok", false: "gone"}[p.model.Raise(o, token, 0, time.Now().UnixMicro())]
	p.agree(t, "raise", got, want)
}

func (p *pair) renew(t *rapid.T) {
	o, token := owner(t), p.token(t)
	got := p.run(t, "renew", fmt.Sprint(o), decimal(token), "1", decimal(modelTTL*1000))[0]
	want := map[quorum.Standing]string{quorum.Renewed: "ok", quorum.Free: "free", quorum.Taken: "taken"}[p.model.Renew(o, token, modelTTL*1_000_000, time.Now().UnixMicro())]
	p.agree(t, "renew", got, want)
}

func (p *pair) repair(t *rapid.T) {
	o, token, shared := owner(t), p.token(t), rapid.Bool().Draw(t, "shared")
	mode := map[bool]string{true: "s", false: "x"}[shared]
	got := p.run(t, "repair", fmt.Sprint(o), decimal(token), mode, decimal(modelTTL*1000), "1 host note")[0]
	want := map[bool]string{true: "ok", false: "taken"}[p.model.Repair(o, token, shared, modelTTL*1_000_000, time.Now().Add(time.Hour).UnixMicro(), time.Now().UnixMicro())]
	p.agree(t, "repair", got, want)
}

func (p *pair) release(t *rapid.T) {
	o := owner(t)
	got := p.run(t, "release", fmt.Sprint(o), "0", "0")[0]
	ok, _ := p.model.Release(sim.Ending{Owner: o}, time.Now().UnixMicro())
	want := map[bool]string{true: "ok", false: "gone"}[ok]
	p.agree(t, "release", got, want)
}
