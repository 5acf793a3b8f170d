package history_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencelock/fencelock/chaostest/history"
)

var ednLine = regexp.MustCompile(`^\{:index (\d+), :type :(invoke|ok), :process (\d+), :f :(acquire|release), :value (nil|\d+), :time (\d+)\}$`)

// ednEvents reads what WriteEDN has written, as a checker does.
func ednEvents(t *testing.T, text string) (all []porcupine.Event) {
	t.Helper()
	open := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := ednLine.FindStringSubmatch(line)
		if f == nil || f[1] != strconv.Itoa(i) {
			t.Fatalf("line %d: %s", i, line)
		}
		e := porcupine.Event{Kind: porcupine.ReturnEvent, Value: f[4], Id: open[f[3]]}
		if f[2] == "invoke" {
			open[f[3]] = i
			e.Kind, e.Id = porcupine.CallEvent, i
		}
		all = append(all, e)
	}
	return all
}

// mutex is the model of a lock that Jepsen's checkers have.
var mutex = porcupine.Model{
	Init: func() any { return false },
	Step: func(state, input, _ any) (bool, any) {
		takes := input == "acquire"
		return state.(bool) != takes, takes
	},
}

func TestEDN(t *testing.T) {
	checked := 0
	for seed := range uint64(50) {
		h := good(seed)
		for i := range h.Acquisitions { // of a mutex
			h.Acquisitions[i].Shared = false
		}
		for _, p := range pairsOf(h, func(a *history.Acquisition) bool { return a.Until > 0 }) {
			if p.b.Returned <= p.a.Until { // they shared it
				p.a.Name, p.b.Name = "shared", "shared"
			}
		}
		last := h.Acquisitions[len(h.Acquisitions)-1]
		late := history.Acquisition{Name: "lock0", ID: "late", Token: last.Token + 1, Called: last.Called, Returned: last.Returned + time.Hour} // nobody believed in it
		h.Acquisitions = append(h.Acquisitions, late)
		var out strings.Builder
		if err := h.WriteEDN(&out, "lock0"); err != nil {
			t.Fatal(err)
		}
		if !porcupine.CheckEvents(mutex, ednEvents(t, out.String())) {
			t.Errorf("seed %d: a good history is no mutex:\n%s", seed, out.String())
		}
		for _, p := range pairsOf(h, func(a *history.Acquisition) bool { return a.Name == "lock0" && a.Until > a.Returned+2*ms }) {
			p.a.Until = p.b.Returned + ms // an overlap
			p.b.Until = max(p.b.Until, p.a.Until+ms)
			checked++
			out.Reset()
			if err := h.WriteEDN(&out, "lock0"); err != nil {
				t.Fatal(err)
			}
			if porcupine.CheckEvents(mutex, ednEvents(t, out.String())) {
				t.Errorf("seed %d: two holders at once are a mutex:\n%s", seed, out.String())
			}
			break
		}
	}
	if checked == 0 {
		t.Error("no overlap was made")
	}
}

func TestEDNRefuses(t *testing.T) {
	h := &history.History{Acquisitions: []history.Acquisition{{Name: "a", Shared: true, Until: 1}, {Name: "c"}}}
	for _, name := range []string{"a", "b", "c"} {
		if err := h.WriteEDN(new(strings.Builder), name); err == nil {
			t.Errorf("%s is written", name)
		}
	}
}
