package redisconn

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

// tryAgains is how often a call is sent to a slot that is moving, over 1.3 s.
const tryAgains = 10

// unsent is the error of a call that the client has not sent, though another try may be.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// Insist makes the calls with the given indexes until each has run or has failed. Those that
// have certainly not run are sent again, and only they: after any other error nobody knows. send
// makes one try of calls; source says of each of all calls whether its source is to be sent.
func Insist(ctx context.Context, todo []int, replies []Reply, send func(todo []int, source []bool) []Reply) {
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

// again reports whether a call whose n-th try ended with err certainly did not run, and may be
// sent again after a pause.
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
		ok = n < tryAgains && (!limited || time.Until(end) > pause) // the last word is the server's
	case kept:
		ok = n < tryAgains
	}
	return pause, ok
}
