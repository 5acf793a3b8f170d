package quorum_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

var terms = quorum.Terms{Nodes: 5, Need: 3, TTL: 10 * time.Second, Drift: 200 * time.Millisecond}

// at is the instant d after the origin on three clocks that agree.
func at(d time.Duration) hold.Instant { return hold.Instant{Mono: d, Boot: d, Wall: d} }

// says is a node's answer, 1 ms after the request.
type says struct {
	node  int
	token int64 // 0 refuses, and -1 stands for an answer to the second round: yes
	floor int64
}

const (
	stored = -1
	gone   = -2
)

// play lets nodes answer, and returns what is ordered, in words.
func play(t *quorum.Take, now time.Duration, answers ...says) (orders []string) {
	for _, a := range answers {
		var o quorum.Orders
		switch {
		case a.token == stored || a.token == gone:
			o = t.Raised(a.node, a.token == stored, 0, at(now))
		default:
			floor := a.floor
			if floor == 0 {
				floor = a.token
			}
			o = t.Asked(a.node, quorum.Vote{Granted: a.token > 0, Token: a.token, Floor: floor}, at(now))
		}
		if len(o.Raise) > 0 {
			orders = append(orders, fmt.Sprint("raise ", o.Raise))
		}
		if len(o.Free) > 0 {
			orders = append(orders, fmt.Sprint("free ", o.Free))
		}
	}
	return orders
}

func TestTake(t *testing.T) {
	const all = "free [0 1 2 3 4]"
	for name, c := range map[string]struct {
		answers []says
		orders  []string
		state   quorum.State
		token   int64
	}{
		"one round":                   {answers: []says{{0, 9, 0}, {1, 9, 0}, {2, 9, 0}}, state: quorum.Won, token: 9},
		"one round, one went further": {answers: []says{{0, 9, 0}, {1, 12, 0}, {2, 0, 0}, {3, 9, 0}}, orders: []string{"raise [0 1 3]"}, state: quorum.Raising, token: 12},
		"a minority":                  {answers: []says{{0, 9, 0}, {1, 9, 0}}, state: quorum.Asking},
		"refused":                     {answers: []says{{0, 9, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}}, orders: []string{all}, state: quorum.Lost},
		"freed when it grants late":   {answers: []says{{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {0, 9, 0}}, orders: []string{all, "free [0]"}, state: quorum.Lost},
		"given up, but it grants":     {answers: []says{{0, 0, 0}, {0, 9, 0}, {1, 9, 0}, {2, 9, 0}}, state: quorum.Won, token: 9},
		"a straggler is raised":       {answers: []says{{0, 9, 0}, {1, 9, 0}, {2, 9, 0}, {3, 15, 0}}, orders: []string{"raise [3]"}, state: quorum.Won, token: 9},
		"a straggler with the token":  {answers: []says{{0, 9, 0}, {1, 9, 0}, {2, 9, 0}, {3, 9, 0}}, state: quorum.Won, token: 9},
		"two rounds":                  {answers: []says{{0, 10, 0}, {1, 9, 0}, {2, 11, 0}, {0, stored, 0}, {1, stored, 0}, {2, stored, 0}}, orders: []string{"raise [0 1 2]"}, state: quorum.Won, token: 11},
		"a straggler helps": {answers: []says{{0, 10, 0}, {1, 9, 0}, {2, 11, 0}, {0, gone, 0}, {3, 7, 0}, {3, stored, 0}, {1, stored, 0}, {2, stored, 0}},
			orders: []string{"raise [0 1 2]", "raise [3]"}, state: quorum.Won, token: 11},
		"it was lost meanwhile": {answers: []says{{0, 10, 0}, {1, 9, 0}, {2, 11, 0}, {3, 0, 0}, {4, 0, 0}, {0, gone, 0}},
			orders: []string{"raise [0 1 2]", all}, state: quorum.Lost, token: 11},
		"the last straggler refuses": {answers: []says{{0, 10, 0}, {1, 9, 0}, {2, 11, 0}, {0, gone, 0}, {3, 0, 0}, {4, 0, 0}},
			orders: []string{"raise [0 1 2]", all}, state: quorum.Lost, token: 11},
		"an answer twice":         {answers: []says{{0, 9, 0}, {0, 9, 0}, {0, 9, 0}}, state: quorum.Asking},
		"an answer nobody wanted": {answers: []says{{0, stored, 0}, {1, stored, 0}, {2, stored, 0}}, state: quorum.Asking},
	} {
		t.Run(name, func(t *testing.T) {
			take := quorum.NewTake(terms, 9, at(0))
			orders := play(take, time.Millisecond, c.answers...)
			if !slices.Equal(orders, c.orders) || take.State() != c.state {
				t.Errorf("%q in state %d, want %q in %d", orders, take.State(), c.orders, c.state)
			}
			if take.State() != quorum.Asking && take.Token() != c.token && c.token != 0 {
				t.Errorf("token %d, want %d", take.Token(), c.token)
			}
		})
	}
}

func TestTakeTooLate(t *testing.T) {
	for _, now := range []time.Duration{terms.TTL - terms.Drift - 1, terms.TTL - terms.Drift} {
		one := quorum.NewTake(terms, 9, at(0))
		play(one, now, says{0, 9, 0}, says{1, 9, 0}, says{2, 9, 0})
		two := quorum.NewTake(terms, 9, at(0))
		play(two, 0, says{0, 1, 0}, says{1, 2, 0}, says{2, 3, 0})
		play(two, now, says{0, stored, 0}, says{1, stored, 0}, says{2, stored, 0})
		want := quorum.Won
		if now >= terms.TTL-terms.Drift {
			want = quorum.Lost
		}
		if one.State() != want || two.State() != want {
			t.Errorf("after %v: states %d and %d, want %d", now, one.State(), two.State(), want)
		}
	}
}

func TestTwoRoundsOnDemand(t *testing.T) {
	careful := terms
	careful.TwoRound = true
	take := quorum.NewTake(careful, 9, at(0))
	if got := play(take, 0, says{0, 9, 0}, says{1, 9, 0}, says{2, 9, 0}); len(got) != 1 || take.State() != quorum.Raising {
		t.Errorf("%q in state %d, want a second round", got, take.State())
	}
}

// TestFloor: an exclusive holder shuts out everybody before it, even where its
// own first token was smaller; a shared one must not shut out who it shares with.
func TestFloor(t *testing.T) {
	answers := []says{{0, 10, 10}, {1, 5, 5}, {2, 11, 4}, {0, stored, 0}, {1, stored, 0}, {2, stored, 0}}
	for _, shared := range []bool{false, true} {
		mode, want := terms, int64(11)
		if mode.Shared = shared; shared {
			want = 4
		}
		take := quorum.NewTake(mode, 9, at(0))
		play(take, 0, answers...)
		if take.State() != quorum.Won || take.Floor() != want || take.Token() != 11 {
			t.Errorf("shared %v: token %d with floor %d, want 11 with %d", shared, take.Token(), take.Floor(), want)
		}
	}
}

func TestExpire(t *testing.T) {
	take := quorum.NewTake(terms, 9, at(0))
	play(take, 0, says{0, 9, 0})
	if o := take.Expire(); len(o.Free) != 5 || take.State() != quorum.Lost {
		t.Errorf("%+v, want all nodes freed", o)
	}
	if o := take.Expire(); len(o.Free) > 0 {
		t.Errorf("expired twice: %+v", o)
	}
	if got := play(take, 0, says{3, 9, 0}); !slices.Equal(got, []string{"free [3]"}) {
		t.Errorf("%q after the end, want the straggler freed", got)
	}
	take = quorum.NewTake(terms, 9, at(0))
	play(take, 0, says{0, 9, 0}, says{1, 9, 0}, says{2, 9, 0})
	if o := take.Expire(); len(o.Free) > 0 || take.State() != quorum.Won {
		t.Error("a lock that was won expired")
	}
}

func TestManyNodes(t *testing.T) {
	many := terms
	many.Nodes, many.Need = 101, 51
	take := quorum.NewTake(many, 9, at(0))
	for i := range 51 {
		play(take, 0, says{50 + i, 9, 0})
	}
	if take.State() != quorum.Won || len(play(take, 0, says{3, 10, 0})) != 1 {
		t.Errorf("state %d with 51 of 101", take.State())
	}
	if o := quorum.NewTake(many, 9, at(0)).Expire(); len(o.Free) != 101 {
		t.Errorf("%d nodes freed, want 101", len(o.Free))
	}
}

// TestMajorityOfServers: an address that leads to another node's server has no
// vote of its own, neither in the first round nor in the second.
func TestMajorityOfServers(t *testing.T) {
	yes := func(server uint64, token int64) quorum.Vote {
		return quorum.Vote{Granted: true, Token: token, Floor: token, Server: server}
	}
	take := quorum.NewTake(terms, 9, at(0))
	take.Asked(0, yes(1, 9), at(1))
	take.Asked(1, yes(2, 9), at(1))
	take.Asked(4, yes(2, 9), at(1))
	if take.State() != quorum.Asking {
		t.Errorf("state %d after two servers of five nodes have granted, one of them twice", take.State())
	}
	if take.Asked(2, yes(3, 9), at(1)); take.State() != quorum.Won {
		t.Errorf("state %d after three servers have granted", take.State())
	}
	take = quorum.NewTake(terms, 9, at(0))
	for i, token := range []int64{7, 8, 10} {
		take.Asked(i, yes(uint64(i+1), token), at(1))
	}
	take.Raised(0, true, 1, at(1))
	take.Raised(1, true, 2, at(1))
	take.Raised(2, true, 2, at(1))
	if take.State() == quorum.Won {
		t.Error("two servers of five nodes stored the token, and it counts")
	}
	r := quorum.NewRenewal(terms, at(0))
	r.Heard(0, quorum.Renewed, 1, at(1))
	r.Heard(1, quorum.Renewed, 2, at(1))
	r.Heard(2, quorum.Renewed, 2, at(1))
	if r.Result() != quorum.Open {
		t.Errorf("a renewal of two servers of five nodes has result %d", r.Result())
	}
	if r.Heard(3, quorum.Renewed, 4, at(1)); r.Result() != quorum.Kept {
		t.Errorf("a renewal of three servers has result %d", r.Result())
	}
}
