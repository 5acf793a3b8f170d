package promtext_test

import (
	"net/http/httptest"
	"testing"

	"github.com/fencelock/fencelock/internal/promtext"
)

// The value of a label is escaped.
func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	promtext.Write(w, "name", "a\"b\\c\nd", []promtext.Metric{{"held", "gauge", "Locks.", 7}, {"wait_seconds", "gauge", "Seconds.", 0.25}})
	const want = `# HELP held Locks.
# TYPE held gauge
held{name="a\"b\\c\nd"} 7
# HELP wait_seconds Seconds.
# TYPE wait_seconds gauge
wait_seconds{name="a\"b\\c\nd"} 0.25
`
	if got := w.Body.String(); got != want {
		t.Errorf("%s", got)
	}
	if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Error(got)
	}
}
