package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestPercentile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for p, want := range map[int]float64{1: 1, 20: 1, 21: 2, 50: 3, 99: 5, 100: 5} {
		if got := percentile(values, p); got != want {
			t.Errorf("p%d is %v, want %v", p, got, want)
		}
	}
	if values[0] != 5 {
		t.Error("the values were put in order")
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		turns []int
		want  float64
	}{
		{[]int{7, 7, 7, 7}, 1},
		{[]int{9, 0, 0, 0}, 0.25},
		{[]int{1, 2, 3}, 36.0 / 42},
		{[]int{0, 0}, 0},
	} {
		if got := jain(c.turns); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.turns, got, c.want)
		}
	}
}

// Each round is compared with itself: a slow moment hits base and all alike.
func TestRatiosCompareWithinARound(t *testing.T) {
	rounds := map[string][]float64{"base": {1, 10, 1}, "other": {2, 20, 3}}
	if got := ratios(rounds, "base"); got["other"] != 2 || got["base"] != 1 {
		t.Error(got)
	}
	if got := medians(rounds); got["other"] != 3 || got["base"] != 1 {
		t.Error(got)
	}
}

func TestInterleaveRotates(t *testing.T) {
	var order []string
	self := func(s string) string { return s }
	got, err := interleave(3, []string{"a", "b", "c"}, self, func(s string) (float64, error) {
		order = append(order, s)
		return float64(len(order)), nil
	})
	if text := strings.Join(order, ""); err != nil || text != "abcbcacab" {
		t.Errorf("%s, %v", text, err)
	}
	if !slices.Equal(got["a"], []float64{1, 6, 8}) {
		t.Error(got)
	}
	broken := errors.New("broken")
	if _, err := interleave(1, []string{"a"}, self, func(string) (float64, error) { return 0, broken }); !errors.Is(err, broken) || !strings.Contains(err.Error(), "a: ") {
		t.Error(err)
	}
}

func TestCountersSince(t *testing.T) {
	before := counters{total: 10, calls: map[string]int64{"get": 4, "set": 6}}
	after := counters{total: 25, calls: map[string]int64{"get": 4, "set": 8, "evalsha": 3}}
	d := after.since(before)
	if d.total != 15 || len(d.calls) != 2 || d.calls["set"] != 2 || d.calls["evalsha"] != 3 {
		t.Errorf("%+v", d)
	}
	if got := (contestant{sends: []string{"set"}}).sent(d); got != 5 {
		t.Errorf("sent %d", got)
	}
	if got := (contestant{}).sent(d); got != 3 {
		t.Errorf("sent %d outside of scripts", got)
	}
}

func TestBars(t *testing.T) {
	r := row{
		what: "it", unit: "s", base: bare,
		values: map[string]float64{bare: 1e-4, ours: 1.2e-4, "fast": 1.1e-4, "slow": 0.02},
		ratios: map[string]float64{bare: 1, ours: 1.2, "fast": 1.1, "slow": 200},
	}
	for _, c := range []struct {
		bar  bar
		met  bool
		says string
	}{
		{atMost(bare, 1.35), true, "bare (1.2)"},
		{atMost(bare, 1.19), false, "<= 1.19"},
		{atMost(bestPeer, 1.1), true, "fast (1.09)"},
		{atMost(bestPeer, 1), false, "fast (1.09)"},
		{atLeastTimesFaster("slow", 100), true, "slow (167)"},
		{atLeastTimesFaster("slow", 170), false, "slow (167)"},
		{noMore(1), true, "<= 1"},
		{atLeast(1), false, ">= 1"},
		{bar{says: "fixed", met: true}, true, "fixed"},
	} {
		r.bars = []bar{c.bar}
		got := r.judge()[0]
		if got.met != c.met || !strings.Contains(got.says, c.says) {
			t.Errorf("%+v, want %v and %q", got, c.met, c.says)
		}
	}
	// Rounds are compared one by one, not by their medians.
	each := compared("it", map[string][]float64{bare: {1, 2, 2}, ours: {10, 12, 30}, "fast": {10, 40, 20}})
	if says := judged(each, atMost("fast", 1)); !strings.Contains(says, "fast (1)") {
		t.Error(says)
	}
	rep := report{suite: redisSuite, rows: []row{r}}
	r.bars = []bar{atMost(bare, 1), atMost(bare, 2)}
	rep.rows = []row{r}
	if missed := rep.missed(); len(missed) != 1 || !strings.Contains(missed[0], "it: ") {
		t.Error(missed)
	}
}

func judged(r row, b bar) string {
	r.bars = []bar{b}
	return r.judge()[0].says
}

func TestCells(t *testing.T) {
	r := row{unit: "s", base: bare, values: map[string]float64{bare: 63e-6, ours: 0.0812, "slow": 2.5}, ratios: map[string]float64{bare: 1, ours: 1288.888, "slow": 39682.5}}
	for name, want := range map[string]string{bare: "1 = 63 us", ours: "1289 (81.2 ms)", "slow": "39682 (2.5 s)", "absent": ""} {
		if got := r.cell(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	n := row{places: 2, values: map[string]float64{ours: 1.005}}
	if got := n.cell(ours); got != "1.00" {
		t.Error(got)
	}
}
