package history

import (
	"slices"
	"time"
)

// Stats are the figures of a run.
type Stats struct {
	Acquisitions int           `json:"acquisitions"`
	WaitP50      time.Duration `json:"wait_p50"`
	WaitP99      time.Duration `json:"wait_p99"`
	Closed       []Stretch     `json:"closed"` // the longest one, if there is any; Rules.Recovery does not matter
	Losses       int           `json:"losses"`
	// Margin is the smallest time from the moment at which a holder stopped relying on its lock, at
	// its deadline or at the signal, to the next grant. Signal is the same for the signal alone: it
	// is negative if the process was frozen at its deadline.
	Margin   Margin         `json:"margin"`
	Signal   Margin         `json:"signal"`
	Accepted int            `json:"accepted"` // writes
	Refused  int            `json:"refused"`  // late writes
	Found    map[string]int `json:"found"`    // violations, expected ones included, by rule
	Turns    map[string]int `json:"turns"`    // how often each worker acquired a lock
	Fairness float64        `json:"fairness"` // Jain's index of the turns: 1 if all are equal, 1/n if one of n workers has all

	waits []time.Duration
}

// Stats returns the figures of h. Call it after [History.Judge].
func (h *History) Stats() Stats {
	closed := h.closed(0)
	s := Stats{Acquisitions: len(h.Acquisitions), Closed: closed[:min(1, len(closed))], Found: map[string]int{}, Turns: map[string]int{}}
	for _, w := range h.Workers {
		s.Turns[w] = 0
	}
	for _, a := range h.Acquisitions {
		s.waits = append(s.waits, a.Returned-a.Called)
		s.Turns[a.Worker]++
	}
	for _, w := range h.Writes {
		if w.Refused {
			s.Refused++
		}
	}
	s.Accepted = len(h.Writes) - s.Refused
	for _, v := range slices.Concat(h.Violations, h.Expected) {
		s.Found[v.Rule]++
	}
	for _, l := range h.Losses() {
		if s.Losses++; l.Next != nil {
			s.Margin.less(Margin{true, l.Margin(), l.ID, l.Next.ID})
			s.Signal.less(Margin{true, l.Next.Returned - l.Lost, l.ID, l.Next.ID})
		}
	}
	s.derive()
	return s
}

// Add adds the figures of another run.
func (s *Stats) Add(other Stats) {
	s.Acquisitions += other.Acquisitions
	s.Losses += other.Losses
	s.Accepted += other.Accepted
	s.Refused += other.Refused
	s.Margin.less(other.Margin)
	s.Signal.less(other.Signal)
	if len(s.Closed) == 0 || len(other.Closed) > 0 && other.Closed[0].Length() > s.Closed[0].Length() {
		s.Closed = other.Closed
	}
	for rule, n := range other.Found {
		s.Found[rule] += n
	}
	for worker, n := range other.Turns {
		s.Turns[worker] += n
	}
	s.waits = append(s.waits, other.waits...)
	s.derive()
}

// derive computes what follows from the other figures.
func (s *Stats) derive() {
	sum, squares := 0.0, 0.0
	for _, n := range s.Turns {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
	}
	s.Fairness = sum * sum / max(float64(len(s.Turns))*squares, 1)
	slices.Sort(s.waits)
	if n := len(s.waits); n > 0 {
		s.WaitP50, s.WaitP99 = s.waits[n/2], s.waits[n*99/100]
	}
}
