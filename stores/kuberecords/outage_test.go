//go:build unix

package kuberecords_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/kubetest"
	"github.com/fencelock/fencelock/recordlock"
)

// TestOutageCostsOneLimit: the API server does not answer. A hundred concurrent calls of locks and records end
// within their limits of their own start.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	s := &site{Server: kubetest.Start(t)}
	r := open(s.URL)
	e := recordlock.New(r, nil)
	defer func() { _ = e.Close() }()
	held := examtest.Held(t, e)
	s.Cut(t)
	defer s.Mend(t)
	const limit = 5 * time.Second // Config.Timeout
	examtest.Outage(t, slices.Concat(examtest.Calls(e, held, limit+time.Second), examtest.Lists(e, limit), examtest.RecordCalls(r, limit)))
}
