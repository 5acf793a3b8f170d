//go:build unix

package sqlrecords_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// TestOutageCostsOneLimit: the server does not answer. A hundred concurrent calls of locks and records end
// within their limits of their own start.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, s *server) {
		r := s.records(t, s.table(t), nil)
		e := recordlock.New(r, nil)
		defer func() { _ = e.Close() }()
		held := examtest.Held(t, e)
		s.freeze(t)
		defer s.thaw(t)
		examtest.Outage(t, slices.Concat(
			examtest.Calls(e, held, 6*time.Second), examtest.Lists(e, sqlrecords.Limit), examtest.RecordCalls(r, sqlrecords.Limit)))
	})
}
