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
	Turns    []Turns        `json:"turns"`
	Fairness float64        `json:"fairness"` // Jain's index of the turns: 1 if all are equal, 1/n if one of n workers has all
}

// Turns are how often a worker acquired a lock.
type Turns struct {
	Worker string `json:"worker"`
	Count  int    `json:"count"`
}

// Stats returns the figures of h. Call it after [History.Judge].
func (h *History) Stats() Stats {
	s := Stats{Acquisitions: len(h.Acquisitions), Found: map[string]int{}}
	var waits []time.Duration
	turns := map[string]int{}
	for _, a := range h.Acquisitions {
		waits = append(waits, a.Returned-a.Called)
		turns[a.Worker]++
	}
	if n := len(waits); n > 0 {
		slices.Sort(waits)
		s.WaitP50, s.WaitP99 = waits[n/2], waits[n*99/100]
	}
	for _, w := range h.Workers {
		s.Turns = append(s.Turns, Turns{w.Name, turns[w.Name]})
	}
	s.Fairness = Fairness(s.Turns)
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
	closed := h.closed(0)
	s.Closed = closed[:min(1, len(closed))]
	return s
}

// Fairness returns Jain's index of turns: 1 if all are equal, 1/n if one of n workers has all, and 0
// without turns.
func Fairness(all []Turns) float64 {
	sum, squares := 0.0, 0.0
	for _, t := range all {
		n := float64(t.Count)
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / max(float64(len(all))*squares, 1)
}
