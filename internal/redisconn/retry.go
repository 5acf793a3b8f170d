package redisconn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// tryAgains is the maximum number of attempts in a slot that is moving, over 1.3 s.
const tryAgains = 10

// unsent is the error of a call that the client has not sent. It can be retried.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// RetryUnsent makes the calls with the given indexes. It retries those that have certainly not run,
// and no others, because after any other error the outcome is unknown. send makes one attempt;
// source says for each of all calls whether to send the source of its script.
func RetryUnsent(ctx context.Context, todo []int, replies []Reply, send func(todo []int, source []bool) []Reply) {
	source := make([]bool, len(replies))
	for n := 1; len(todo) > 0; n++ {
		var rest []int
		var longest time.Duration
		for k, r := range send(todo, source) {
			i := todo[k]
			replies[i] = r
			if pause, ok := again(ctx, n, r.Err, &source[i]); ok {
				rest, longest = append(rest, i), max(longest, pause)
			}
		}
		if todo = rest; len(todo) > 0 {
			retry.Sleep(ctx, longest)
		}
	}
}

// again reports whether a call certainly did not run in its n-th attempt, which ended with err, and
// can be retried after a pause.
func again(ctx context.Context, n int, err error, source *bool) (pause time.Duration, ok bool) {
	words, _ := Refused(err)
	_, kept := errors.AsType[unsent](err)
	switch {
	case ctx.Err() != nil || past(ctx):
		return 0, false
	case strings.HasPrefix(words, "NOSCRIPT"):
		ok = !*source
		*source = true
	case strings.HasPrefix(words, "TRYAGAIN"):
		pause = min(10*time.Millisecond<<n, 200*time.Millisecond)
		end, limited := ctx.Deadline()
		ok = n < tryAgains && (!limited || time.Until(end) > pause) // otherwise return the server's error
	case kept:
		ok = n < tryAgains
	}
	return pause, ok
}
