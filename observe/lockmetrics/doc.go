// Package lockmetrics has what the exporters of metrics share: the class of a name, the series of
// each set of labels, the locks that are held and waited for now, and the words for outcomes.
//
// The exporters are modules of their own and may be older than this package, so only add to it.
package lockmetrics

// The boundaries of histograms, in seconds and in parts of a lease.
var (
	CallBounds   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	HoldBounds   = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	MarginBounds = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9}
)
