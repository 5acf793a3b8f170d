//go:build race

package sim_test

// pace divides what the race detector would make ten times as slow. The whole of it
// runs without the detector: see "make test".
const pace = 10
