package history

import "time"

// SearchAlone searches the acquisitions of one name, whatever the sweep finds.
func SearchAlone(all []Acquisition) (illegal, decided bool) {
	of := believed(all)
	for _, acquisitions := range of {
		found, ok := search(acquisitions, time.Now().Add(time.Minute))
		illegal, decided = len(found) > 0, ok
	}
	return illegal, decided || len(of) == 0
}

// Closed returns the stretches of all names, the longest first.
func (h *History) Closed(recovery time.Duration) []Stretch { return h.closed(recovery) }
