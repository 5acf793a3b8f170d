// Package stores has sketches of stores of records, on DynamoDB and on MongoDB. They show how the
// conditional writes of a vendor's client become [driver.Records]. They compile, and were not tested
// on a server: run the conformance suite on recordlock.New(records, nil) before you use one.
package stores

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// drift is how far apart the clocks of clients may be: a record remains for this time longer than
// its TTL.
const drift = time.Minute

// expiry returns when a record is over, in microseconds since 1970, or 0 for never.
func expiry(ttl time.Duration) int64 {
	if ttl == 0 {
		return 0
	}
	return time.Now().Add(ttl + drift).UnixMicro()
}

// over reports whether a record is over.
func over(expires int64) bool { return expires != 0 && time.Now().UnixMicro() >= expires }

// limit is how long a call may take.
const limit = 5 * time.Second

// begin returns the context of a call whose arguments are good.
func begin(ctx context.Context, wrong error) (context.Context, context.CancelFunc, error) {
	if wrong != nil {
		return nil, nil, wrong
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	return limited, cancel, nil
}

// unavailable is the error of a request without an answer: the record may have changed.
func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// noClock is the Clock of a store whose clients cannot read its clock.
func noClock() (earliest, latest time.Time, err error) {
	return earliest, latest, driver.ErrUnsupported
}
