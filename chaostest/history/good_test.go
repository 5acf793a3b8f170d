package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

const (
	ms      = time.Millisecond
	ttl     = time.Second
	workers = 4
)

// bounds are the rules that a good history obeys.
var bounds = history.Rules{Death: ttl + 50*ms, Closed: 100 * ms, Search: time.Minute}

// A maker makes a history that no oracle may find fault with: workers that share correct locks,
// and release, lose, freeze and die.
type maker struct {
	*rand.Rand
	h     *history.History
	token int64
	count int
}

func good(seed uint64) *history.History {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1)), h: &history.History{TTL: ttl}}
	for i := range workers {
		m.h.Workers = append(m.h.Workers, fmt.Sprint("w", i))
	}
	for n := range 3 {
		m.name(fmt.Sprint("lock", n))
	}
	m.h.Length += ms
	return m.h
}

// below returns a time of less than d, and at least 1 ns.
func (m *maker) below(d time.Duration) time.Duration { return 1 + time.Duration(m.Int64N(int64(d))) }

// name adds the acquisitions of one name: one after the other, or several shared ones together.
func (m *maker) name(name string) {
	free, value := 10*ms, int64(0)
	for range 12 {
		together, limit := 1, 0
		if m.IntN(3) == 0 {
			together, limit = 1+m.IntN(3), m.IntN(2)*3
		}
		shared := together > 1 || m.IntN(4) == 0
		granted, all := free+m.below(5*ms), 10*ms
		for range together {
			a := m.acquisition(name, granted+m.below(2*ms), granted-m.below(40*ms))
			a.Shared, a.Limit = shared, limit
			a.Until = granted + 2*ms + m.below(30*ms) // shared ones have a time in common
			next := m.end(&a)
			if !shared {
				if m.IntN(3) == 0 {
					a.MinHold = m.below(60 * ms)
					next = max(next, a.Returned+a.MinHold)
				}
				m.write(a, &value)
			}
			m.add(a)
			all = max(all, next)
		}
		m.attempt(name, granted+2*ms)
		free = all
	}
	m.h.Length = max(m.h.Length, free)
}

func (m *maker) acquisition(name string, returned, called time.Duration) history.Acquisition {
	m.token, m.count = m.token+1+m.Int64N(3), m.count+1
	return history.Acquisition{
		ID: fmt.Sprint("a", m.count), Name: name, Worker: fmt.Sprint("w", m.IntN(workers)),
		Token: m.token, Called: max(called, 0), Returned: returned,
	}
}

// end ends an acquisition in one of four ways, and returns when the lock is free.
func (m *maker) end(a *history.Acquisition) (free time.Duration) {
	switch m.IntN(6) {
	case 0:
		a.Died = a.Until + m.below(ms)
		return a.Died + m.below(ttl)
	case 1:
		a.Deadline = a.Until + m.below(5*ms)
		a.Lost = a.Deadline - m.below(ms) // a grace
		a.Ended = a.Lost + m.below(ms)
		return a.Deadline + m.below(20*ms)
	case 2: // frozen beyond its deadline
		a.Deadline = a.Until + m.below(ttl)
		a.Lost = a.Deadline + m.below(ttl)
		a.Ended = a.Lost + m.below(ms)
		m.h.Faults = append(m.h.Faults, history.Fault{What: "freeze", Workers: []string{a.Worker}, From: a.Until, To: a.Lost})
		return a.Deadline + m.below(20*ms)
	}
	a.Ended = a.Until + m.below(ms)
	return a.Ended
}

// write adds a write of the holder, and the refused one of a holder that was frozen before.
func (m *maker) write(a history.Acquisition, value *int64) {
	*value++
	w := history.Event{ID: a.ID, Name: a.Name, Worker: a.Worker, Token: a.Token, From: a.Returned, At: a.Returned + 1, Value: *value}
	m.h.Writes = append(m.h.Writes, w)
	for _, b := range slices.Backward(m.h.Acquisitions) {
		if b.Name == a.Name && b.Deadline != 0 && !b.Shared {
			m.h.Writes = append(m.h.Writes, history.Event{
				ID: b.ID, Name: a.Name, Worker: b.Worker, Token: b.Token, From: w.At, At: w.At + 1, Refused: true,
			})
			return
		}
	}
}

// attempt adds an attempt that does not wait, while the lock is held.
func (m *maker) attempt(name string, at time.Duration) {
	m.count++
	m.h.Waits = append(m.h.Waits, history.Wait{ID: fmt.Sprint("a", m.count), Name: name, Worker: "w0", From: at, To: at + 1, Try: true, Held: true})
}

func (m *maker) add(a history.Acquisition) {
	m.h.Acquisitions = append(m.h.Acquisitions, a)
	m.h.Waits = append(m.h.Waits, history.Wait{ID: a.ID, Name: a.Name, Worker: a.Worker, From: a.Called, To: a.Returned, Granted: true})
}
