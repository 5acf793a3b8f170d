package s3records_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/s3records"
)

// login sets a login for all requests of a test.
func login(t testing.TB) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
}

// open returns records on a server.
func open(s *objecttest.Server) *s3records.Records {
	return s3records.New("bucket", &s3records.Config{Endpoint: s.URL, Prefix: "some where/"})
}

// world is a bucket, beside a memory that has the locks which some of the cases take.
type world struct {
	server *objecttest.Server
	locks  *memlock.Engine
	mend   chan struct{}
}

func (w *world) Client(testing.TB) drivertest.Client {
	return examtest.Store{Engine: w.locks.Client(), Stored: open(w.server)}
}

func (w *world) Restart(testing.TB) {}

func (w *world) Cut(testing.TB) {
	w.mend = make(chan struct{})
	w.server.Intercept(func(_ http.ResponseWriter, r *http.Request, _ func()) bool {
		select {
		case <-w.mend:
		case <-r.Context().Done():
		}
		return false
	})
}

func (w *world) Mend(testing.TB) {
	w.server.Intercept(nil)
	close(w.mend)
}

// TestExam runs the cases of the conformance suite that are about records.
func TestExam(t *testing.T) {
	login(t)
	examtest.Records(t, "record-", drivertest.Suite{World: func(t testing.TB) drivertest.World {
		s := objecttest.Start(t)
		s.Page = 7
		return &world{server: s, locks: memlock.New(nil)}
	}})
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	login(t)
	s := objecttest.Start(t)
	examtest.Gone(t, examtest.Links(strings.Trim(s.URL, "htp:/"), func(t testing.TB, addr string) driver.Engine {
		e := recordlock.New(s3records.New("bucket", &s3records.Config{Endpoint: "http://" + addr}), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}
