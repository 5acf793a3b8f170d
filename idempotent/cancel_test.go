package idempotent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// cutter is a record store whose caller goes, or gets no answer, at its first Swap.
type cutter struct {
	driver.Records
	cut    atomic.Bool
	cancel context.CancelFunc // nil: the answer is lost
	late   time.Duration      // after which the Swap is carried out; 0 is before it returns, less is never
}

func (c *cutter) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if c.cut.Swap(true) {
		return c.Records.Swap(ctx, key, value, version, ttl)
	}
	carry := func() { _, _ = c.Records.Swap(context.Background(), key, value, version, ttl) }
	switch {
	case c.late > 0:
		time.AfterFunc(c.late, carry)
	case c.late == 0:
		carry()
	}
	if c.cancel == nil {
		return "", driver.ErrUnavailable
	}
	c.cancel()
	return "", ctx.Err()
}

// A caller whose context ends while it claims a key, or who gets no answer, leaves the
// key open, whether the claim is carried out, is carried out later, or is not.
func TestClaimOfACallerThatHasGone(t *testing.T) {
	for what, late := range map[string]time.Duration{"carried out": 0, "later": 5 * time.Millisecond, "much later": 5 * time.Second, "never": -1} {
		for _, gone := range []bool{true, false} {
			for _, again := range []bool{false, true} { // the key has a record already
				t.Run(what, func(t *testing.T) {
					bubble(t, func(t *testing.T, engine *memlock.Engine) { cutClaim(t, engine, late, gone, again) })
				})
			}
		}
	}
}

func cutClaim(t *testing.T, engine *memlock.Engine, late time.Duration, gone, again bool) {
	s := jobs(engine, idempotent.Config{})
	if again {
		if _, err := idempotent.Do(t.Context(), s, "a", func(context.Context) (int64, error) { return 0, errors.New("broken") }); err == nil {
			t.Fatal("no error")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &cutter{Records: engine.Records(), late: late}
	if gone {
		c.cancel = cancel
	}
	ran := false
	_, err := idempotent.Do(ctx, over(engine, c, nil), "a", func(context.Context) (int64, error) { ran = true; return 0, nil })
	if !gone && late == 0 && err == nil && ran {
		return // the claim was found, and stored once more
	}
	if gone != errors.Is(err, context.Canceled) || err == nil || ran {
		t.Errorf("%v, ran: %v", err, ran)
	}
	time.Sleep(time.Second)
	var runs atomic.Int64
	if got, err := idempotent.Do(t.Context(), s.With(idempotent.Options{NoWait: true}), "a", counted(&runs)); got != 1 || err != nil {
		t.Errorf("a second later: %d, %v", got, err)
	}
	time.Sleep(10 * time.Second)
	if got, err := idempotent.Do(t.Context(), s.With(idempotent.Options{NoWait: true}), "a", counted(&runs)); got != 1 || err != nil {
		t.Errorf("what is stored: %d, %v", got, err)
	}
	synctest.Wait()
}
