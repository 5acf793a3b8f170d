//go:build unix

package pglock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
)

// TestRepeatedLockSeesWhatOthersDid: a process that takes and frees a name many
// times stops looking at the table; it looks again when somebody else added to it.
func TestRepeatedLockSeesWhatOthersDid(t *testing.T) {
	pg := enginetest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	for name, act := range map[string]func(*pglock.Engine, driver.Request){
		"vanished": func(other *pglock.Engine, req driver.Request) {
			l := try(t, other, req)
			pin(t, pg, l)()
			pg.Terminate(t, holder(t, pg, l.Name))
		},
		"shared and vanished": func(other *pglock.Engine, req driver.Request) {
			l := try(t, other, shared(req, 0))
			pg.Terminate(t, holder(t, pg, l.Name))
		},
		"minimum": func(other *pglock.Engine, req driver.Request) {
			req.AtLeast = 10 * time.Second
			release(t, other, try(t, other, req))
		},
	} {
		req := request(name)
		for range 50 {
			release(t, e, try(t, e, req))
		}
		req.TTL = 10 * time.Second
		act(engine(t, pg.DSN(), nil), req)
		eventually(t, "the server has freed the lock", func() bool {
			return pg.Query(t, "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", name) == "true"
		})
		req.TTL = request(name).TTL
		refused(t, e, req)
	}
}
