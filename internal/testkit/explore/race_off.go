//go:build !race

package explore

// Race says that the race detector is on, which makes an exploration ten times as slow: it runs without.
const Race = false
