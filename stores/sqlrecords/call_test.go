package sqlrecords

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// TestDriverHidesTheContext: a driver that finds its connection cut off when the context
// ends says only that it is bad. The error tells of the context all the same.
func TestDriverHidesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := New(nil, PostgreSQL, nil)
		r.SkipCheck()
		err := r.call(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return sqldriver.ErrBadConn
		})
		for _, want := range []error{driver.ErrUnavailable, context.DeadlineExceeded, sqldriver.ErrBadConn} {
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	})
}
