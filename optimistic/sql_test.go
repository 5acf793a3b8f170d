package optimistic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/optimistic"
)

// sqlState is an error of a database.
type sqlState string

func (s sqlState) Error() string    { return "state " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

func TestRefused(t *testing.T) {
	for err, want := range map[error]bool{
		sqlState("40001"): true,
		sqlState("40P01"): true,
		fmt.Errorf("commit: %w", sqlState("40001")): true,
		// As the driver for MySQL writes them, of today and of before.
		errors.New("Error 1213 (40001): Deadlock found when trying to get lock"):                    true,
		fmt.Errorf("take: %w", errors.New("Error 1205 (HY000): Lock wait timeout exceeded")):        true,
		errors.Join(context.Canceled, errors.New("Error 1020: Record has changed since last read")): true,
		errors.New("Error 1062 (23000): Duplicate entry '1213' for key 'PRIMARY'"):                  false,
		errors.New("Error 12130 (40001): no such error"):                                            false,
		sqlState("40003"):     false, // whether it was committed is unknown
		sqlState("23505"):     false,
		errors.New("40001"):   false,
		driver.ErrUnavailable: false,
		context.Canceled:      false,
	} {
		if got := optimistic.Refused(err); got != want {
			t.Errorf("Refused(%v) = %v", err, got)
		}
	}
}

// TestRetry: a conflict is tried again, anything else is the answer.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := errors.New("other")
		for _, c := range []struct {
			answers []error
			want    error
		}{
			{[]error{nil}, nil},
			{[]error{other}, other},
			{[]error{driver.ErrConflict, fmt.Errorf("a row: %w", driver.ErrConflict), nil}, nil},
			{[]error{driver.ErrConflict, other}, other},
		} {
			calls := 0
			err := optimistic.Retry(t.Context(), func(context.Context) error {
				calls++
				return c.answers[calls-1]
			})
			if !errors.Is(err, c.want) || calls != len(c.answers) {
				t.Errorf("%v: got %v after %d calls", c.answers, err, calls)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := optimistic.Retry(ctx, func(context.Context) error { return driver.ErrConflict })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrConflict) {
			t.Errorf("conflicts until the context ended: %v", err)
		}
		calls := 0
		err = optimistic.Retry(ctx, func(context.Context) error { calls++; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || calls > 0 {
			t.Errorf("a context that has ended: %v after %d calls", err, calls)
		}
	})
}

// result is what an UPDATE came to.
type result struct {
	rows int64
	err  error
}

func (r result) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }
func (r result) RowsAffected() (int64, error) { return r.rows, r.err }

func TestChanged(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct {
		res       result
		err, want error
	}{
		{result{1, nil}, nil, nil},
		{result{0, nil}, nil, driver.ErrConflict},
		{result{0, other}, nil, other},
		{result{}, other, other},
	} {
		if err := optimistic.Changed(c.res, c.err); err != c.want {
			t.Errorf("Changed(%+v, %v) = %v, want %v", c.res, c.err, err, c.want)
		}
	}
}
