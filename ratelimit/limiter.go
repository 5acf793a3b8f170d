package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// ErrLimited means that a wait for a turn would take too long; see [LimitedError].
var ErrLimited = errors.New("ratelimit: too many")

// LimitedError is an [ErrLimited] with the facts.
type LimitedError struct {
	Key        string
	Limit      Limit
	RetryAfter time.Duration // the turn would come after so long
}

func (e *LimitedError) Error() string {
	return fmt.Sprintf("%v: %q is limited to %v; its turn comes in %v", ErrLimited, e.Key, e.Limit, e.RetryAfter.Round(time.Millisecond))
}

// Is reports that a LimitedError is an ErrLimited.
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }

// Policy is what happens while the engine is down.
type Policy int

// The policies.
const (
	FailClosed Policy = iota // nothing is granted: the error of the engine is returned
	FailOpen                 // everything is granted
	FailLocal                // Config.Local is granted to each process
)

// Config tunes a limiter. The zero value is useful.
type Config struct {
	// Down is what happens while the engine is down (ErrUnavailable, ErrConfig). The
	// zero value is FailClosed.
	Down Policy

	// Local is the limit that each process keeps by itself, for each key, while the
	// engine is down and Down is FailLocal: the limit divided by the number of processes,
	// say. It is ignored otherwise. The zero value is invalid with FailLocal.
	Local Limit

	// Timeout is how long the engine may take for an answer before it counts as down;
	// 0 means a second. A context that ends sooner is an error whatever Down says, and
	// tells nothing of the engine: so it should be less than the callers have.
	Timeout time.Duration

	// Pause is how long FailOpen and FailLocal decide by themselves, once the engine was down,
	// before a request asks it again: only that one waits for it meanwhile. 0 means a
	// second. It is ignored with FailClosed.
	Pause time.Duration
}

// Limiter keeps a limit for each of many keys. It is safe for concurrent use, needs no
// closing, and runs no goroutine of its own.
type Limiter struct {
	engine driver.RateLimiter
	name   string
	limit  Limit
	pace   pace
	cfg    Config
	local  pace
	bad    error // what is wrong with the limits or the cfg; every call returns it

	mu    sync.Mutex // guards all below
	down  error      // why the engine was down when it was asked last; nil if it was not
	until time.Time  // with down: when it is asked again
	table gcra.Table // of FailLocal
}

// epoch is where the clock of FailLocal begins.
var epoch = time.Now()

// New returns a limiter for whoever uses the same name on the same engine. The name keeps
// its keys apart from those of other limiters. It does no I/O; cfg may be nil. A limit
// or a cfg that makes no sense is fencelock.ErrInvalid at each call.
func New(engine driver.RateLimiter, name string, limit Limit, cfg *Config) *Limiter {
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
		l.bad = fmt.Errorf("%w: the policy %d, the timeout %v and the pause %v: none of them may be negative, and there are three policies",
			driver.ErrInvalid, l.cfg.Down, l.cfg.Timeout, l.cfg.Pause)
	case l.cfg.Down == FailLocal:
		l.local, l.bad = l.cfg.Local.pace()
	}
	return l
}

// separate keeps the end of a limiter's name apart from a key, which may be what anybody
// likes.
var separate = strings.NewReplacer("%", "%25", ":", "%3A")

// Name returns the name of the limiter.
func (l *Limiter) Name() string { return l.name }

// Limit returns the limit, with its defaults filled in.
func (l *Limiter) Limit() Limit { return l.limit }

// Result is what was decided about a request.
type Result struct {
	OK         bool
	Limit      Limit         // the limit that was kept: that of this process if it decided alone
	Granted    int           // how many events were granted: 0 by Peek, fewer than asked for only by AllowAtMost
	Remaining  int           // how many more may happen at once now; the whole burst if everything is granted
	RetryAfter time.Duration // until the same request, or one event of an AllowAtMost, would be granted; 0 if OK
	Next       time.Duration // until one more than Remaining may happen; 0 if all of the burst may
	Reset      time.Duration // until all of the burst may happen; 0 if it may
	Err        error         // why the engine is down, so that Config.Down has decided; nil if the engine has
}

// Allow reports whether one event of a key may happen now. If not, nothing is taken.
//
// An error means that nothing was decided: fencelock.ErrUnavailable or ErrConfig if the
// engine is down and the policy is FailClosed, ErrInvalid for a limit or a key that makes no
// sense, or ctx's own. A key is any text of up to 512 bytes, less the limiter's name; ""
// is fine where there is only one.
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is Allow for n events, all or none. More than the burst is ErrInvalid.
func (l *Limiter) AllowN(ctx context.Context, key string, n int) (Result, error) {
	d, err := l.decide(ctx, key, wish{n: n})
	return d.Result, err
}

// AllowAtMost is Allow for as many of n events as may happen now: Result.Granted says how
// many. It is OK if there is one at least, and a refusal otherwise. Any n from 1 is fine: no
// more than the burst is ever granted at once.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int) (Result, error) {
	d, err := l.decide(ctx, key, wish{n: n, fewer: true})
	return d.Result, err
}

// Peek reports what Allow would, and takes nothing: Result.OK if an event of the key may
// happen now, and Remaining how many. Others may take them before the caller does, so only
// Allow decides. Its errors are those of Allow.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	d, err := l.decide(ctx, key, wish{look: true})
	return d.Result, err
}

// Reset forgets the events of a key: all of its burst may happen at once again, for all
// processes. Turns that were reserved before are still their callers', beside that burst;
// cancelling them has no effect any more.
//
// The policy does not apply: if the engine is down the error is fencelock.ErrUnavailable or
// ErrConfig, and what the engine has counted may stand. What this process has counted for
// FailLocal is forgotten even then.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := cmp.Or(l.bad, ctx.Err()); err != nil {
		return err
	}
	key = l.keyOf(key)
	l.mu.Lock()
	l.table.Reset(key)
	l.mu.Unlock()
	return l.insist(ctx, func(ctx context.Context) error { return l.engine.ResetRate(ctx, key) })
}

// wish is what is asked of a key.
type wish struct {
	n     int           // events, at least 1
	look  bool          // only look: n does not matter
	fewer bool          // fewer than n will do
	wait  time.Duration // how long they may wait for their turn
}

// of returns the wish with no more than a burst, where fewer will do, or an error.
func (w wish) of(limit Limit) (wish, error) {
	switch {
	case w.look:
		w.n = 0
	case w.n < 1:
		return w, fmt.Errorf("%w: %d events; Peek takes none", driver.ErrInvalid, w.n)
	case w.fewer:
		w.n = min(w.n, limit.Burst)
	case w.n > limit.Burst:
		return w, fmt.Errorf("%w: %d events at once, with a burst of %d; AllowAtMost grants as many as there are", driver.ErrInvalid, w.n, limit.Burst)
	}
	return w, nil
}

// keyOf is a key of the limiter as the engine knows it.
func (l *Limiter) keyOf(key string) string { return separate.Replace(l.name) + ":" + key }

// decision is a Result with what it takes to undo it.
type decision struct {
	Result
	take  driver.RateTake
	taken driver.RateTaken
}

// decide asks for events of a key, or looks.
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

// paused returns why the engine is not to be asked just now, nil if it is.
func (l *Limiter) paused() error {
	if l.cfg.Down == FailClosed {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.down == nil || !now.Before(l.until) {
		l.until = now.Add(l.cfg.Pause) // this one asks, and the others go on
		return nil
	}
	return l.down
}

// ask asks the engine, and notes whether it answers.
func (l *Limiter) ask(ctx context.Context, d *decision) error {
	err := l.insist(ctx, func(ctx context.Context) (err error) {
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

// insist makes a call of the engine until that is no conflict. An engine that was asked by
// many at once has answered, so a conflict is no outage, however long it takes.
func (l *Limiter) insist(ctx context.Context, call func(context.Context) error) error {
	for {
		if err := l.once(ctx, call); !errors.Is(err, driver.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// once makes a call that may take as long as the engine may for an answer.
func (l *Limiter) once(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	err := call(limited)
	switch {
	case ctx.Err() != nil && isDown(err):
		return fmt.Errorf("%w: %s", ctx.Err(), err.Error()) // not wrapped: it tells nothing of the engine
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !isDown(err) && !errors.Is(err, driver.ErrConflict):
		// The time was up between two steps, such as those of OnRecords.
		err = fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnavailable, l.cfg.Timeout, err)
	}
	return err
}

// decideHere decides by the memory of this process, since the engine is down for a reason.
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

// result says what an answer means.
func (p pace) result(limit Limit, take driver.RateTake, taken driver.RateTaken) Result {
	r := Result{OK: taken.OK, Granted: int(taken.Cost / p.interval), Limit: limit, Reset: taken.Ahead}
	if free := p.burst - taken.Ahead; free > 0 {
		r.Remaining = int(free / p.interval)
	}
	if r.Remaining < limit.Burst {
		r.Next = taken.Ahead + time.Duration(r.Remaining+1)*p.interval - p.burst
	}
	least := take.Least()
	if take.Cost == 0 { // a look
		r.OK, least = r.Remaining > 0, p.interval
	}
	if !r.OK {
		r.RetryAfter = taken.Ahead + least - p.burst
	}
	return r
}

// back gives back what was decided.
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
