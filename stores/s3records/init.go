package s3records

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/bucket"
	"github.com/fencelock/fencelock/internal/retry"
)

// ErrConditions means that the store does not obey the conditions of writes, so it cannot keep locks.
var ErrConditions = fmt.Errorf("%w: the store does not obey the conditions of writes", driver.ErrConfig)

// initKey is the key of the object that Init writes. No record has it.
const initKey = "fencelock-init="

// Init checks that the store obeys the conditions of writes, also of concurrent ones, and returns
// ErrConditions otherwise. It writes an object whose key is the prefix and "fencelock-init=", which
// remains. The bucket must exist.
func (r *Records) Init(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*r.limit+8*r.bucket.Pace)
	defer cancel()
	for pause := backoff(); ; {
		var failed error
		race := func(etag string) (won int) {
			if retry.Sleep(ctx, r.bucket.Pace); failed == nil {
				won, failed = r.race(ctx, etag)
			}
			return won
		}
		first, second := race(""), race("") // 1 and 0, or 0 twice if there is the object
		other := race(`"none"`)             // 0
		now, err := r.bucket.Get(ctx, initKey)
		if failed = cmp.Or(failed, err); failed != nil {
			if r.bucket.Pace > 0 && !errors.Is(failed, driver.ErrConfig) && pause.Wait(ctx) {
				continue // writes are limited
			}
			return r.failure(failed)
		}
		same := race(now.ETag) // 1, or 0 if another Init has written
		switch {
		case first > 1 || second > 0:
			return fmt.Errorf("%w: If-None-Match: *", ErrConditions)
		case other > 0 || same > 1:
			return fmt.Errorf("%w: If-Match", ErrConditions)
		case failed != nil:
			return r.failure(failed)
		case same == 1:
			return nil
		case !pause.Wait(ctx):
			return fmt.Errorf("%w: the store refuses a write with If-Match and the ETag that it has returned", driver.ErrConfig)
		}
	}
}

// racers is the number of writes in a race.
const racers = 8

// race sends writes on the same condition at the same time. It returns how many have succeeded, and
// an error if none has and none was refused.
func (r *Records) race(ctx context.Context, etag string) (won int, err error) {
	var group errgroup.Group
	errs := make([]error, racers)
	for i := range errs {
		group.Go(func() error { // ends at the time limit of a request
			_, errs[i] = r.bucket.Put(ctx, initKey, []byte("checks conditional writes "+rand.Text()+"\n"), etag)
			return nil
		})
	}
	_ = group.Wait()
	refused := false
	for _, e := range errs {
		if refused = refused || errors.Is(e, bucket.ErrChanged); e == nil {
			won++
		}
	}
	if won > 0 || refused {
		return won, nil
	}
	return 0, errs[0]
}
