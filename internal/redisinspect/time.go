package redisinspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

const (
	pings       = 20                     // round trips that are measured
	clockBound  = 500 * time.Millisecond // by how much clocks may differ before it is worth a word
	attemptPart = 6                      // one attempt to renew may take TTL/6
)

// latency measures a few round trips, and is the first to learn that a server
// cannot be reached.
func (in *Inspection) latency(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Check: "latency"}
	var took []time.Duration
	for range pings {
		begun := time.Now()
		answers, err := in.Conn.Each(ctx, "PING")
		took = append(took, time.Since(begun))
		for _, a := range answers {
			if err == nil {
				err = a.Err
			}
		}
		if err != nil && !refusal(err) {
			return f, err
		}
		if err != nil && len(took) == 1 {
			f = noRight(f.Check, err, "+ping") // the refusal took as long as an answer
		}
	}
	slices.Sort(took)
	return in.judgeLatency(f, took[len(took)/2], took[len(took)-1]), nil
}

// judgeLatency compares round trips with the time that an attempt to renew has. The longest
// is a warning: such an attempt is made again, and two fit in before the lease ends.
func (in *Inspection) judgeLatency(f driver.Finding, middle, longest time.Duration) driver.Finding {
	if f.Severity == driver.Unknown {
		return f
	}
	f.Observed = fmt.Sprintf("p50 %v, longest %v, of %d pings", Short(middle), Short(longest), pings)
	limit := in.TTL / attemptPart
	switch {
	case middle > limit:
		f.Severity = driver.Broken
		f.Impact = fmt.Sprintf("an attempt to renew a TTL of %v has %v, so locks are lost", in.TTL, limit)
		f.Fix = "a longer TTL, or a server that is nearer"
	case longest > limit/2:
		f.Severity = driver.Warning
		f.Impact = fmt.Sprintf("an attempt to renew a TTL of %v has %v, and is sometimes repeated", in.TTL, limit)
		f.Fix = "a longer TTL"
	}
	return f
}

// Short rounds a time to what people read.
func Short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// clock compares the clocks of the masters with ours. The answer was made
// somewhere between question and answer, so half the round trip is the doubt.
func (in *Inspection) clock(ctx context.Context) (driver.Finding, error) {
	f := driver.Finding{Check: "clock"}
	begun := time.Now()
	answers, err := in.Conn.Each(ctx, "TIME")
	ended := time.Now()
	if err != nil {
		return f, err
	}
	doubt := ended.Sub(begun) / 2
	var worst time.Duration
	for _, a := range answers {
		if a.Err != nil && refusal(a.Err) {
			return noRight(f.Check, a.Err, "+time"), nil
		}
		theirs, err := parseTime(a)
		if err != nil {
			return f, err
		}
		if off := theirs.Sub(begun.Add(doubt)); off.Abs() >= worst.Abs() {
			worst = off
		}
	}
	f.Observed = fmt.Sprintf("the server is %s by %v, give or take %v", direction(worst), Short(worst.Abs()), Short(doubt))
	if worst.Abs()-doubt > clockBound {
		f.Severity = driver.Warning
		f.Impact = "leases count on the server's clock alone and stay right, but times shown here are off, and tokens " +
			"go back if the server loses its data and its clock is then set back"
		f.Fix = "keep both clocks with NTP, and let them be slewed rather than stepped"
	}
	return f, nil
}

// direction says on which side of ours a clock is.
func direction(off time.Duration) string {
	if off < 0 {
		return "behind"
	}
	return "ahead"
}

// parseTime reads an answer to TIME. One that makes no sense is no finding about a clock.
func parseTime(a redisconn.Answer) (time.Time, error) {
	if a.Err != nil {
		return time.Time{}, a.Err
	}
	at, ok := redisfmt.ParseTime(a.Text)
	if !ok {
		return at, fmt.Errorf("%w: the server tells the time as %q", driver.ErrUnavailable, a.Text)
	}
	return at, nil
}
