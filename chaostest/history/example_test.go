package history_test

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A holder that was frozen wrote after its successor, and nothing refused the write.
func ExampleHistory_Judge() {
	h := &history.History{
		Acquisitions: []history.Acquisition{
			{ID: "first", Name: "job", Token: 33, Called: 1, Returned: 2, Until: 5, Deadline: 5, Lost: 30, Ended: 30},
			{ID: "second", Name: "job", Token: 34, Called: 3, Returned: 10, Until: 20, Ended: 21},
		},
		Writes: []history.Event{
			{ID: "second", Name: "job", Token: 34, From: 11, At: 12},
			{ID: "first", Name: "job", Token: 33, From: 31, At: 32},
		},
	}
	h.Judge(history.Rules{Search: time.Minute})
	for _, v := range h.Violations {
		fmt.Println(v)
	}
	s := h.Stats()
	fmt.Println("the next grant came", s.Margin.By, "after the deadline,", -s.Signal.By, "before the signal")
	// Output:
	// late write: accepted late: job by first (token 33, at 32ns) after job by second (token 34, at 12ns)
	// the next grant came 5ns after the deadline, 20ns before the signal
}
