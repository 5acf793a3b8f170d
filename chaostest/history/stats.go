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
	Closed       []Stretch     `json:"closed"` // the longest of each name; the longest comes first
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
	s.WaitP50, s.WaitP99 = h.waited()
	s.Margin, s.Signal = margins(h)
	s.Turns, s.Fairness = h.turns()
	s.Closed = h.longest()
	for _, a := range h.Acquisitions {
		if a.Lost != 0 {
			s.Losses++
		}
	}
	for _, w := range h.Writes {
		if w.Refused {
			s.Refused++
		} else {
			s.Accepted++
		}
	}
	for _, v := range slices.Concat(h.Violations, h.Expected) {
		s.Found[v.Rule]++
	}
	return s
}

// waited returns the median and the 99th percentile of the waits that ended with a lock.
func (h *History) waited() (p50, p99 time.Duration) {
	var all []time.Duration
	for _, a := range h.Acquisitions {
		all = append(all, a.Returned-a.Called)
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

func (h *History) turns() (all []Turns, fairness float64) {
	count := map[string]int{}
	for _, a := range h.Acquisitions {
		count[a.Worker]++
	}
	sum, squares := 0.0, 0.0
	for _, w := range h.Workers {
		n := float64(count[w.Name])
		sum, squares = sum+n, squares+n*n
		all = append(all, Turns{w.Name, count[w.Name]})
	}
	if squares == 0 {
		return all, 0
	}
	return all, sum * sum / (float64(len(all)) * squares)
}

// longest returns the longest stretch of each name.
func (h *History) longest() (all []Stretch) {
	for _, s := range h.closed() { // the longest comes first
		if !slices.ContainsFunc(all, func(o Stretch) bool { return o.Name == s.Name }) {
			all = append(all, s)
		}
	}
	return all
}
