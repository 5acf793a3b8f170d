// Package lockmetrics has what the exporters of metrics share: the class of a name, the series of
// each set of labels, the locks that are held and waited for now, and the words for outcomes.
//
// The exporters are modules of their own and may be older than this package, so only add to it.
package lockmetrics
