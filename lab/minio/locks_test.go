package minio

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/recordlock"
)

// late are cases that ask for the state of a lease at its end.
var late = map[string]string{
	"adopt-ended": "the store's clock has whole seconds: a process that has not seen the lease before finds up to two seconds later that it is over",
}

// versioned makes a bucket keep all versions of its objects.
const versioned = `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>`

// TestLocks runs the conformance suite, with processes that are killed and frozen.
func TestLocks(t *testing.T) { suite(t, false) }

// TestVersionedBucket runs the conformance suite in a bucket that keeps all versions of its objects.
func TestVersionedBucket(t *testing.T) { suite(t, true) }

func suite(t *testing.T, versions bool) {
	program := build(t)
	examtest.Locks(t, func(t testing.TB) examtest.Server {
		s, places := start(t, program), new(atomic.Int64)
		if versions {
			s.do(t, "s3", "PUT", "/locks?versioning=", versioned)
		}
		return examtest.Server{
			Place: func(testing.TB) func(testing.TB) drivertest.Client {
				where := fmt.Sprintf("%s world %d/", s.url(), places.Add(1))
				return func(t testing.TB) drivertest.Client { return proc.Start(t, "s3", where) }
			},
			Restart: func(t testing.TB) { s.kill(); s.run(t) }, Freeze: s.freeze, Thaw: s.thaw,
		}
	}, late)
}

// TestHolderGone measures when the lock of a holder that is gone is granted to a waiter.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	s := start(t, build(t))
	examtest.Gone(t, examtest.Links(s.addr, func(t testing.TB, addr string) driver.Engine {
		e := recordlock.New(recordsAt("http://"+addr+" gone/"), nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}))
}
