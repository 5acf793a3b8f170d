//go:build unix

package sqlrecords_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/memlock"
)

// world is a table, beside a memory that has the locks which some of the cases take.
type world struct {
	*server
	name  string // of the table
	with  settings
	locks *memlock.Engine
}

func (w *world) Client(t testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: w.records(t, w.name, w.with)}
}

func (w *world) Restart(t testing.TB) { w.restart(t) }
func (w *world) Cut(t testing.TB)     { w.freeze(t) }
func (w *world) Mend(t testing.TB)    { w.thaw(t) }

// sit puts the cases about records whose names have a prefix to connections with some
// settings.
func sit(t *testing.T, s *server, prefix string, with settings) {
	examtest.Records(t, prefix, drivertest.Suite{World: func(t testing.TB) drivertest.World {
		return &world{s, s.table(t), with, memlock.New(nil)}
	}})
}

// TestExam runs the cases of the conformance suite that are about records, on a server
// of each dialect, and to some of them again over connections of other kinds.
func TestExam(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, s *server) {
		sit(t, s, "record-", nil)
		if t.Failed() {
			return
		}
		level := s.pick("tx_isolation", "default_transaction_isolation")
		for _, with := range []settings{
			{level: s.pick("'READ-COMMITTED'", "repeatable read")},
			{level: s.pick("'SERIALIZABLE'", "serializable")},
		} {
			t.Run(with[level], func(t *testing.T) { sit(t, s, "record-race", with) })
		}
		odd := settings{"default_query_exec_mode": "simple_protocol", "TimeZone": "Pacific/Kiritimati"}
		if s.driver == "mysql" {
			odd = settings{"clientFoundRows": "true", "interpolateParams": "true", "time_zone": "'+13:00'", "charset": "latin1"}
		}
		for _, name := range []string{"record-swap", "record-expiry", "record-list"} {
			sit(t, s, name, odd)
		}
	})
}
