package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// ErrLimited means that an event would have to wait too long. The error is a [LimitedError].
var ErrLimited = errors.New("ratelimit: limit exceeded")

// LimitedError is an [ErrLimited] with details.
type LimitedError struct {
	Key        string
	Limit      Limit
	RetryAfter time.Duration // when the event could happen
}

func (e *LimitedError) Error() string {
	return fmt.Sprintf("%v: %q is limited to %v; retry after %v", ErrLimited, e.Key, e.Limit, e.RetryAfter.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrLimited) true.
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }

// Policy says what happens while the engine is down.
type Policy int

// The policies.
const (
	FailClosed Policy = iota // nothing is granted; the engine's error is returned
	FailOpen                 // everything is granted
	FailLocal                // each process grants Config.Local
)

// Config holds the settings of a limiter. The zero value is ready to use.
type Config struct {
	// Down says what happens while the engine is down (ErrUnavailable, ErrConfig). The default is
	// FailClosed.
	Down Policy

	// Local is the limit that each process applies to each key while the engine is down and Down is
	// FailLocal, for example the limit divided by the number of processes. It is required with
	// FailLocal and ignored otherwise.
	Local Limit

	// Timeout is how long the engine may take to answer before it counts as down. 0 means one
	// second. If a caller's context ends earlier, the caller gets an error whatever Down says, so
	// set Timeout to less than the callers' deadlines.
	Timeout time.Duration

	// Pause is how long FailOpen and FailLocal decide without the engine once it was unreachable.
	// Then one request asks the engine again, and the others do not wait for it. 0 means one
	// second. It is ignored with FailClosed.
	Pause time.Duration

	// OnDecision is called with each decision, except those of Peek and invalid calls. It must not
	// block. Use the RateEnd hook of a fencelock.Tracer to count decisions. nil, the default, means
	// no call.
	OnDecision func(context.Context, fencelock.TraceRate)
}

// Limiter applies one limit to each of many keys. It is safe for concurrent use, need not be
// closed, and runs no goroutine of its own.
type Limiter struct {
	engine fencelock.RateLimiter
	name   string
	limit  Limit
	pace   pace
	cfg    Config
	local  pace
	bad    error // what is wrong with the limits or the cfg; returned by every call

	mu    sync.Mutex // guards the fields below
	down  error      // why the engine was down at the last request; nil if it was not
	until time.Time  // if down is set: when to ask the engine again
	table gcra.Table // the counts of FailLocal
}

// epoch is the zero of FailLocal's clock.
var epoch = time.Now()

// New returns a limiter that is shared by all users of the name on the same engine. The name
// separates its keys from those of other limiters. It does no I/O. cfg may be nil. With an invalid
// limit or cfg every call returns fencelock.ErrInvalid.
func New(engine fencelock.RateLimiter, name string, limit Limit, cfg *Config) *Limiter {
	l := &Limiter{engine: engine, name: name, limit: limit.withDefaults()}
	if cfg != nil {
		l.cfg = *cfg
	}
	l.cfg.Timeout = cmp.Or(l.cfg.Timeout, time.Second)
	l.cfg.Pause = cmp.Or(l.cfg.Pause, time.Second)
	l.pace, l.bad = limit.pace()
	switch {
	case l.bad != nil:
	case l.cfg.Down < FailClosed || l.cfg.Down > FailLocal || l.cfg.Timeout < 0 || l.cfg.Pause < 0:
		l.bad = fmt.Errorf("%w: policy %d, timeout %v and pause %v: Down must be one of the three policies, and neither duration may be negative",
			driver.ErrInvalid, l.cfg.Down, l.cfg.Timeout, l.cfg.Pause)
	case l.cfg.Down == FailLocal:
		l.local, l.bad = l.cfg.Local.pace()
	}
	return l
}

// separate escapes the name of a limiter, so that its end is unambiguous whatever the key contains.
var separate = strings.NewReplacer("%", "%25", ":", "%3A")

// Result is the decision about a request.
type Result struct {
	OK         bool
	Limit      Limit         // the limit that was applied; Config.Local if this process decided
	Granted    int           // events granted: 0 by Peek; fewer than asked for only by AllowAtMost
	Remaining  int           // events that may happen at once now; the whole burst if everything is granted
	RetryAfter time.Duration // until the same request, or one event of an AllowAtMost, could be granted; 0 if OK
	Next       time.Duration // until one more than Remaining is available; 0 if the whole burst is
	Reset      time.Duration // until the whole burst is available; 0 if it is
	Err        error         // why the engine was down, so that Config.Down decided; nil if the engine decided
}

// Allow takes one event of a key if it may happen now, and reports whether it may. If not, it takes
// nothing.
//
// An error means that there was no decision: fencelock.ErrUnavailable or ErrConfig if the engine is
// down and the policy is FailClosed, ErrInvalid for an invalid limit or key, or the error of ctx. A
// key is any text; together with the limiter's name it has at most 512 bytes. It may be empty.
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is [Limiter.Allow] for n events, all or none. An n above the burst is ErrInvalid.
func (l *Limiter) AllowN(ctx context.Context, key string, n int) (Result, error) {
	d, err := l.decide(ctx, key, wish{n: n})
	return d.Result, err
}

// AllowAtMost is [Limiter.Allow] for as many of n events as may happen now. Result.Granted is their
// number, and Result.OK is true if it is at least one. n must be at least 1. It may exceed the
// burst, but at most a burst is granted at once.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int) (Result, error) {
	d, err := l.decide(ctx, key, wish{n: n, fewer: true})
	return d.Result, err
}

// Peek takes nothing and reports the state of a key: Result.OK is true if an event may happen now,
// and Result.Remaining is their number. Other processes may take them first, so use Allow to
// decide. The errors are those of Allow.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	d, err := l.decide(ctx, key, wish{look: true})
	return d.Result, err
}

// Reset gives a key its whole burst again, for all processes. Existing reservations remain valid in
// addition to the new burst; cancelling them has no effect any more.
//
// Config.Down does not apply. If the engine is down, Reset returns fencelock.ErrUnavailable or
// ErrConfig, and the counts of the engine may remain. The counts of this process for FailLocal are
// deleted even then.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := cmp.Or(l.bad, ctx.Err()); err != nil {
		return err
	}
	key = l.keyOf(key)
	l.mu.Lock()
	l.table.Reset(key)
	l.mu.Unlock()
	return l.retryConflicts(ctx, func(ctx context.Context) error { return l.engine.ResetRate(ctx, key) })
}

// wish is what a caller asks of a key.
type wish struct {
	n     int           // number of events, at least 1
	look  bool          // only look; n is ignored
	fewer bool          // fewer than n are enough
	wait  time.Duration // how long the caller would wait
}

// of checks the wish against the limit. If fewer events are enough, it reduces n to the burst.
func (w wish) of(limit Limit) (wish, error) {
	switch {
	case w.look:
		w.n = 0
	case w.n < 1:
		return w, fmt.Errorf("%w: %d events: ask for at least 1, or use Peek to take none", driver.ErrInvalid, w.n)
	case w.fewer:
		w.n = min(w.n, limit.Burst)
	case w.n > limit.Burst:
		return w, fmt.Errorf("%w: %d events are more than the burst of %d: ask for fewer, or use AllowAtMost", driver.ErrInvalid, w.n, limit.Burst)
	}
	return w, nil
}

// keyOf returns the engine's key for a key of the limiter.
func (l *Limiter) keyOf(key string) string { return separate.Replace(l.name) + ":" + key }

// decision is a Result with the data to undo it.
type decision struct {
	Result
	take  driver.RateTake
	taken driver.RateTaken
}

// decide decides about a wish and reports the decision.
func (l *Limiter) decide(ctx context.Context, key string, w wish) (d decision, err error) {
	if err = cmp.Or(l.bad, ctx.Err()); err != nil {
		return d, err
	}
	asked, err := w.of(l.limit)
	if err != nil {
		return d, err
	}
	d.take = l.pace.take(l.keyOf(key), asked)
	if err = d.take.Check(); err != nil {
		return d, err
	}
	d, err = l.answer(ctx, d, w, asked)
	if l.cfg.OnDecision != nil && !w.look {
		data := fencelock.TraceRate{Limiter: l.name, Key: key, Asked: w.n, Granted: d.Granted, Err: cmp.Or(err, d.Err)}
		if e, ok := l.engine.(driver.Engine); ok {
			data.Engine = e.Traits().Engine
		}
		l.cfg.OnDecision(ctx, data)
	}
	return d, err
}

// answer asks the engine, or decides as Config.Down says. asked is w, checked against the limit.
func (l *Limiter) answer(ctx context.Context, d decision, w, asked wish) (_ decision, err error) {
	if err = l.paused(); err == nil {
		err = l.ask(ctx, &d)
	}
	switch {
	case err == nil:
		d.Result = l.pace.result(l.limit, d.take, d.taken)
		return d, nil
	case ctx.Err() != nil, !isDown(err), l.cfg.Down == FailClosed:
		return d, err
	case l.cfg.Down == FailOpen:
		d.Result = Result{OK: true, Granted: asked.n, Limit: l.limit, Remaining: l.limit.Burst, Err: err}
		return d, nil
	}
	local, tooMany := w.of(l.cfg.Local.withDefaults())
	if tooMany != nil {
		return d, err
	}
	l.decideHere(&d, local, err)
	return d, nil
}

// isDown reports whether an engine's error means that it cannot decide.
func isDown(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig)
}

// paused returns why the engine should not be asked now, or nil.
func (l *Limiter) paused() error {
	if l.cfg.Down == FailClosed {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.down == nil || !now.Before(l.until) {
		l.until = now.Add(l.cfg.Pause) // this request asks; the others do not until then
		return nil
	}
	return l.down
}

// ask asks the engine and records whether it answers.
func (l *Limiter) ask(ctx context.Context, d *decision) error {
	err := l.retryConflicts(ctx, func(ctx context.Context) (err error) {
		d.taken, err = l.engine.TakeRate(ctx, d.take)
		return err
	})
	if err != nil && (ctx.Err() != nil || !isDown(err)) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down = err; err != nil {
		l.until = time.Now().Add(l.cfg.Pause)
	}
	return err
}

// retryConflicts repeats a call of the engine after each conflict. A conflict means that the engine
// answers, so it never counts as down.
func (l *Limiter) retryConflicts(ctx context.Context, call func(context.Context) error) error {
	for {
		if err := l.once(ctx, call); !errors.Is(err, driver.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// once makes one call with the timeout of the engine.
func (l *Limiter) once(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	err := call(limited)
	switch {
	case ctx.Err() != nil && isDown(err):
		return fmt.Errorf("%w: %s", ctx.Err(), err.Error()) // not wrapped: it says nothing about the engine
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !isDown(err) && !errors.Is(err, driver.ErrConflict):
		// The timeout passed between two steps, such as those of OnRecords.
		err = fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnavailable, l.cfg.Timeout, err)
	}
	return err
}

// decideHere decides with the counts of this process. why says why the engine is down.
func (l *Limiter) decideHere(d *decision, w wish, why error) {
	take := l.local.take(d.take.Key, w)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(epoch).Microseconds()
	got, ahead := l.table.Take(take.Key, now, take.Cost.Microseconds(), take.Most.Microseconds(), take.Least().Microseconds())
	taken := driver.RateTaken{OK: got > 0, Cost: time.Duration(got) * time.Microsecond, Ahead: time.Duration(ahead) * time.Microsecond, Now: time.UnixMicro(now)}
	d.Result, d.take, d.taken = l.local.result(l.cfg.Local.withDefaults(), take, taken), take, taken
	d.Err = why
}

// result converts an answer of the engine.
func (p pace) result(limit Limit, take driver.RateTake, taken driver.RateTaken) Result {
	r := Result{OK: taken.OK, Granted: int(taken.Cost / p.interval), Limit: limit, Reset: taken.Ahead}
	if free := p.burst - taken.Ahead; free > 0 {
		r.Remaining = int(free / p.interval)
	}
	if r.Remaining < limit.Burst {
		r.Next = taken.Ahead + time.Duration(r.Remaining+1)*p.interval - p.burst
	}
	least := take.Least()
	if take.Cost == 0 { // from Peek
		r.OK, least = r.Remaining > 0, p.interval
	}
	if !r.OK {
		r.RetryAfter = taken.Ahead + least - p.burst
	}
	return r
}

// back returns what was taken.
func (l *Limiter) back(ctx context.Context, d *decision) error {
	switch {
	case d.Err == nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.Timeout)
		defer cancel()
		return l.engine.ReturnRate(ctx, d.take, d.taken)
	case l.cfg.Down == FailLocal:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.table.Return(d.take.Key, d.taken.Cost.Microseconds(), left(d.taken))
	}
	return nil
}
