package lockmetrics

import "slices"

// Metric declares one metric.
type Metric struct {
	Name   string // such as "hold.losses"
	Unit   string // "s", "1", or what is counted, such as "{lock}"
	Help   string
	Hint   string    // what it shows, for the documentation
	Labels []string  // the keys, such as "engine" and "error.type"
	Words  []string  // the values of the last label, if they are known
	Bounds []float64 // the boundaries of a histogram; nil for other metrics
	Gauge  bool      // it is read by Recorder.Read; other metrics without bounds are counters
}

// Metrics returns all metrics, in the order of the documentation. The caller must not change them.
func Metrics() []*Metric { return slices.Clone(all) }

var all []*Metric

// The words for outcomes, in the order of the documentation.
var (
	failureWords = []string{"held", "timeout", "canceled", "unavailable", "config", "invalid", other}
	endWords     = []string{"released", "max_hold", "lost"}
	lossWords    = []string{"expired", "broken", "gone"}
	runWords     = []string{"ok", "failed"}
	tickWords    = append(runWords[:2:2], "claimed", "overlapped", "late", "paused", "error")
)

// The boundaries of histograms, in seconds and in parts of a lease.
var (
	callBounds   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBounds   = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	marginBounds = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9}
)

// lockLabels are the first labels of the metrics of locks.
var lockLabels = []string{"engine", "mode", "kind", "class"}

func ofLocks(more ...string) []string { return append(lockLabels[:4:4], more...) }

var (
	acquireTime = declare(Metric{Name: "acquire.duration", Unit: "s", Labels: ofLocks("contended"), Words: []string{"false", "true"}, Bounds: callBounds,
		Help: "Duration of successful acquisitions.", Hint: "without contention, that of the engine"})
	failures = declare(Metric{Name: "acquire.failures", Unit: "{acquisition}", Labels: ofLocks("error.type"), Words: failureWords,
		Help: "Acquisitions that failed."})
	holdTime = declare(Metric{Name: "hold.duration", Unit: "s", Labels: ofLocks("hold.end"), Words: endWords, Bounds: holdBounds,
		Help: "How long locks were held."})
	held = declare(Metric{Name: "hold.count", Unit: "{lock}", Labels: ofLocks(), Gauge: true,
		Help: "Locks held now.", Hint: "a leak"})
	oldest = declare(Metric{Name: "hold.oldest", Unit: "s", Labels: ofLocks(), Gauge: true,
		Help: "Age of the oldest held lock.", Hint: "a job that hangs"})
	losses = declare(Metric{Name: "hold.losses", Unit: "{lock}", Labels: ofLocks("error.type"), Words: lossWords,
		Help: "Locks lost before they were released.", Hint: "work that may have been cut short"})
	waiting = declare(Metric{Name: "wait.count", Unit: "{acquisition}", Labels: ofLocks(), Gauge: true,
		Help: "Acquisitions in a queue now."})
	renewalTime = declare(Metric{Name: "renewal.duration", Unit: "s", Labels: []string{"engine"}, Bounds: callBounds,
		Help: "Duration of batches of renewals.", Hint: "a slow server"})
	margin = declare(Metric{Name: "renewal.margin", Unit: "1", Labels: []string{"engine"}, Bounds: marginBounds,
		Help: "The least part of its lease that a lock had left at a renewal.", Hint: "about 0.6; 0 is a loss"})
	renewals = declare(Metric{Name: "renewal.locks", Unit: "{lock}", Labels: []string{"engine", "result"}, Words: []string{"renewed", "failed", "gone"},
		Help: "Renewals of locks.", Hint: "a slow or unreachable server"})
	releaseTime = declare(Metric{Name: "release.duration", Unit: "s", Labels: ofLocks("error.type"), Bounds: callBounds,
		Help: "Duration of releases."})
	refusals = declare(Metric{Name: "fence.refusals", Unit: "{write}", Labels: ofLocks(),
		Help: "Late writes that guards refused."})
	leading = declare(Metric{Name: "election.leading", Unit: "{term}", Labels: ofLocks(), Gauge: true,
		Help: "1 while this process leads."})
	terms = declare(Metric{Name: "election.terms", Unit: "{term}", Labels: ofLocks(),
		Help: "Terms that this process began."})
	ticks = declare(Metric{Name: "cron.ticks", Unit: "{tick}", Labels: []string{"engine", "class", "result"}, Words: tickWords,
		Help: "Ticks of cron jobs on this instance; ok and failed are runs."})
	runTime = declare(Metric{Name: "cron.run.duration", Unit: "s", Labels: []string{"engine", "class", "result"}, Words: runWords, Bounds: holdBounds,
		Help: "Duration of runs of cron jobs."})
	outcomes = declare(Metric{Name: "idempotent.outcomes", Unit: "{call}", Labels: []string{"engine", "class", "result"},
		Words: []string{"done", "failed", "lost", "stored", "in_progress", "mismatch", "error"},
		Help:  "Uses of idempotency keys; done, failed and lost are runs."})
	decisions = declare(Metric{Name: "ratelimit.decisions", Unit: "{decision}", Labels: []string{"engine", "class", "error.type", "result"},
		Words: []string{"granted", "limited", "failed"},
		Help:  "Decisions of rate limiters."})
)

func declare(m Metric) *Metric {
	all = append(all, &m)
	return &m
}
