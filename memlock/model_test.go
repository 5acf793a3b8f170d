package memlock_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/memlock"
)

// A model is the rule of fit in a few lines: the weights of those who hold and
// of those who wait, in order, and the limit.
type model struct {
	limit          int
	holders, queue []int
}

// admit lets in whoever is next, as long as the next one fits.
func (m *model) admit() {
	for len(m.queue) > 0 {
		taken := 0
		for _, weight := range m.holders {
			taken += weight
		}
		if taken > 0 && taken+m.queue[0] > m.limit {
			return
		}
		m.holders, m.queue = append(m.holders, m.queue[0]), m.queue[1:]
	}
}

// play makes random requests, releases and resizes on a store and on the model.
type play struct {
	t       *testing.T
	rnd     *rand.Rand
	clients []*memlock.Engine
	model   model
	in      []*waiting // parallel to model.holders
	next    []*waiting // parallel to model.queue
}

func (p *play) step() {
	client := p.clients[p.rnd.IntN(len(p.clients))]
	switch n := p.rnd.IntN(10); {
	case n < 4:
		weight := 1 + p.rnd.IntN(6)
		p.next = append(p.next, wait(client, seats(6, weight)))
		p.model.queue = append(p.model.queue, weight)
	case n < 7 && len(p.in) > 0:
		i := p.rnd.IntN(len(p.in))
		if err := client.Release(p.t.Context(), leaseOf("x", p.in[i].grant)); err != nil {
			p.t.Fatal(err)
		}
		p.in = slices.Delete(p.in, i, i+1)
		p.model.holders = slices.Delete(p.model.holders, i, i+1)
	case n < 8 && len(p.next) > 0:
		i := p.rnd.IntN(len(p.next))
		p.next[i].cancel()
		<-p.next[i].done
		p.next = slices.Delete(p.next, i, i+1)
		p.model.queue = slices.Delete(p.model.queue, i, i+1)
	case n < 9:
		p.model.limit = 1 + p.rnd.IntN(9)
		resize(p.t, client, p.model.limit)
	case len(p.next) == 0: // those who wait join again, and any of them first
		client.Restart()
	}
}

// compare admits in the model and fails the test unless the store did the same.
func (p *play) compare(step int) {
	synctest.Wait()
	before := len(p.model.holders)
	p.model.admit()
	granted := len(p.model.holders) - before
	p.in, p.next = append(p.in, p.next[:granted]...), p.next[granted:]
	holders, waiters := weights(p.t, p.clients[0])
	if !slices.Equal(holders, p.model.holders) || !slices.Equal(waiters, p.model.queue) {
		p.t.Fatalf("step %d, limit %d: holders of %v and waiters of %v, want %v and %v",
			step, p.model.limit, holders, waiters, p.model.holders, p.model.queue)
	}
	for _, w := range p.in {
		if !w.answered() || w.err != nil {
			p.t.Fatalf("step %d: a holder did not learn that it holds: %v", step, w.err)
		}
	}
}

func TestRuleOfFit(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(t *testing.T, a, b, c *memlock.Engine) {
			p := &play{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), clients: []*memlock.Engine{a, b, c}, model: model{limit: 6}}
			defer func() { // so that no goroutine outlives the bubble
				for _, w := range slices.Concat(p.in, p.next) {
					w.cancel()
				}
			}()
			for step := range 200 {
				p.step()
				p.compare(step)
			}
		})
	}
}
