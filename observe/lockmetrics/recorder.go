package lockmetrics

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/fencelock/fencelock"
)

// Series records one value: the duration of a histogram, or what a counter is increased by.
type Series func(ctx context.Context, value float64)

// Recorder records what a tracer reports. It is safe for concurrent use.
type Recorder struct {
	series               func(m *Metric, values []string) Series
	locks                *table[lockSeries]
	jobs, keys, limiters *table[labels]
}

// New returns a Recorder. class returns the class of a name; nil means the text before the first colon
// or slash, and the whole name of an election, a job or a limiter. series makes a series of a metric
// for the values of its labels, of which a missing one is empty. It may be called more than once for
// the same values. Gauges have no Series; see [Recorder.Read].
func New(class func(name string) string, series func(m *Metric, values []string) Series) *Recorder {
	r := &Recorder{series: series}
	same := func(l labels) *labels { return &l }
	r.locks = newTable(class, r.newLockSeries)
	r.jobs = newTable(class, r.newJob)
	r.keys = newTable(class, same)
	r.limiters = newTable(class, same)
	return r
}

// Tracer returns a tracer that feeds the Recorder.
func (r *Recorder) Tracer() *fencelock.Tracer {
	return &fencelock.Tracer{
		AcquireWait: r.acquireWait,
		AcquireEnd:  r.acquireEnd,
		HoldStart:   r.holdStart,
		HoldEnd:     r.holdEnd,
		RenewEnd:    r.renewEnd,
		ReleaseEnd:  r.releaseEnd,
		Stale:       r.stale,
		TickEnd:     r.tickEnd,
		OnceEnd:     r.onceEnd,
		RateEnd:     r.rateEnd,
	}
}

// Read calls gauge with the current value of each series of each gauge.
func (r *Recorder) Read(gauge func(m *Metric, values []string, value float64)) {
	for l, s := range r.locks.all() {
		n, age := s.holds.state()
		gauge(held, s.values, float64(n))
		gauge(oldest, s.values, age.Seconds())
		gauge(waiting, s.values, float64(s.waiting.Load()))
		if l.kind == fencelock.KindElection {
			gauge(leading, s.values, float64(n))
		}
	}
}

// record records a value that is rare enough to look for its series.
func (r *Recorder) record(ctx context.Context, m *Metric, value float64, values ...string) {
	r.series(m, values)(ctx, value)
}

// each returns the series of all words of a metric.
func (r *Recorder) each(m *Metric, values []string) map[string]Series {
	series := map[string]Series{}
	for _, word := range m.Words {
		series[word] = r.series(m, with(values, word))
	}
	return series
}

// with returns values and one more, and leaves values as it is.
func with(values []string, more string) []string {
	return append(values[:len(values):len(values)], more)
}

// lockSeries are the series of the locks of one class, and what is held and waited for now.
type lockSeries struct {
	values  []string // of the labels
	waiting atomic.Int64
	holds   holds

	acquired, ends, failures, losses map[string]Series // by the last label
	released, refusals               Series
	terms                            Series // nil unless it is an election
}

// newLockSeries makes the series of a class. Counters of what should not happen, and of terms, begin
// with 0, so that an increase of them shows the first one.
func (r *Recorder) newLockSeries(l labels) *lockSeries {
	values := []string{l.engine, l.mode, l.kind, l.class}
	s := &lockSeries{
		values:   values,
		acquired: r.each(acquireTime, values),
		ends:     r.each(holdTime, values),
		failures: r.each(failures, values),
		losses:   r.each(losses, values),
		released: r.series(releaseTime, with(values, "")),
		refusals: r.series(refusals, values),
	}
	ctx := context.Background()
	for _, loss := range s.losses {
		loss(ctx, 0)
	}
	s.failures["unavailable"](ctx, 0)
	s.refusals(ctx, 0)
	if l.kind == fencelock.KindElection {
		s.terms = r.series(terms, values)
		s.terms(ctx, 0)
	}
	return s
}

// newJob begins the counters of a job with 0.
func (r *Recorder) newJob(l labels) *labels {
	for _, outcome := range []string{"ok", "failed", "late", "error"} {
		r.record(context.Background(), ticks, 0, l.engine, l.class, outcome)
	}
	return &l
}

// of returns the series of a lock.
func (r *Recorder) of(d fencelock.TraceLock) *lockSeries {
	return r.locks.of(d.Engine, d.Mode.String(), d.Kind, d.Name)
}

func (r *Recorder) acquireWait(_ context.Context, d fencelock.TraceAcquireWait) {
	r.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine}).waiting.Add(1)
}

func (r *Recorder) acquireEnd(ctx context.Context, d fencelock.TraceAcquireEnd) {
	s := r.of(d.TraceLock)
	switch failure := Failure(d.Err); {
	case failure != "":
		s.failures[failure](ctx, 1)
	case d.Queued > 0:
		s.acquired["true"](ctx, d.Waited.Seconds())
	default:
		s.acquired["false"](ctx, d.Waited.Seconds())
	}
	if d.Queued > 0 {
		s.waiting.Add(-1)
	}
}

func (r *Recorder) holdStart(ctx context.Context, d fencelock.TraceLock) context.Context {
	s := r.of(d)
	if s.terms != nil {
		s.terms(ctx, 1)
	}
	return r.begin(ctx, d, s)
}

func (r *Recorder) holdEnd(ctx context.Context, d fencelock.TraceHoldEnd) {
	h := r.holdingFrom(ctx, d.TraceLock)
	if h == nil {
		return
	}
	h.end()
	h.series.ends[holdEnd(d)](ctx, d.Held.Seconds())
	if d.Lost != nil {
		h.series.losses[Loss(d.Lost)](ctx, 1)
	}
}

func (r *Recorder) renewEnd(ctx context.Context, d fencelock.TraceRenewEnd) {
	r.record(ctx, renewalTime, d.Took.Seconds(), d.Engine)
	if d.Margin < 1 {
		r.record(ctx, margin, d.Margin, d.Engine)
	}
	r.record(ctx, renewals, float64(d.Locks-d.Failed), d.Engine, "renewed")
	r.record(ctx, renewals, float64(d.Failed-d.Gone), d.Engine, "failed")
	r.record(ctx, renewals, float64(d.Gone), d.Engine, "gone")
}

func (r *Recorder) releaseEnd(ctx context.Context, d fencelock.TraceReleaseEnd) {
	var s *lockSeries
	if h := r.holdingFrom(ctx, d.TraceLock); h != nil {
		s = h.series
	} else { // a grant that was not used
		s = r.of(d.TraceLock)
	}
	if failure := Failure(d.Err); failure != "" {
		r.record(ctx, releaseTime, d.Took.Seconds(), with(s.values, failure)...)
		return
	}
	s.released(ctx, d.Took.Seconds())
}

func (r *Recorder) stale(ctx context.Context, d fencelock.TraceStale) {
	r.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine}).refusals(ctx, 1)
}

func (r *Recorder) tickEnd(ctx context.Context, d fencelock.TraceTick) {
	job := r.jobs.of(d.Engine, "", fencelock.KindCron, d.Job)
	r.record(ctx, ticks, 1, job.engine, job.class, d.Outcome)
	if slices.Contains(runWords, d.Outcome) {
		r.record(ctx, runTime, d.Took.Seconds(), job.engine, job.class, d.Outcome)
	}
}

func (r *Recorder) onceEnd(ctx context.Context, d fencelock.TraceOnce) {
	l := r.keys.of(d.Engine, "", fencelock.KindLock, d.Name)
	r.record(ctx, outcomes, 1, l.engine, l.class, d.Outcome)
}

func (r *Recorder) rateEnd(ctx context.Context, d fencelock.TraceRate) {
	l := r.limiters.of(d.Engine, "", kindRate, d.Limiter)
	r.record(ctx, decisions, 1, l.engine, l.class, Failure(d.Err), decision(d))
}
