// Package check verifies histories: what clients of a lock did, and when, by one clock. [Sweep]
// needs no search. Every acquisition is an interval, from when acquire returned to when its holder
// stopped believing that it holds. Intervals that exclude each other must be disjoint, and tokens
// must increase. Sweep finds every overlap, in O(n log n).
package check
