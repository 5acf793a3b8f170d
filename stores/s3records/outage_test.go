package s3records_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// TestOutageCostsOneLimit: the store does not answer. A hundred concurrent calls of locks and records end
// within their limits of their own start.
func TestOutageCostsOneLimit(t *testing.T) {
	login(t)
	w := &world{server: objecttest.Start(t), locks: memlock.New(nil)}
	r := open(w.server)
	e := recordlock.New(r, nil)
	defer func() { _ = e.Close() }()
	held := examtest.Held(t, e)
	w.Cut(t)
	defer w.Mend(t)
	const limit = 5 * time.Second // Config.Timeout
	examtest.Outage(t, slices.Concat(examtest.Calls(e, held, limit+time.Second), examtest.Lists(e, limit), examtest.RecordCalls(r, limit)))
}

// TestSilentConnections: the connections have been dropped without a word, and new ones work.
func TestSilentConnections(t *testing.T) {
	login(t)
	examtest.SilentConnections(t, objecttest.Start(t).URL, func(url string) driver.Engine {
		e := recordlock.New(s3records.New("b", &s3records.Config{Endpoint: url}), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	})
}
