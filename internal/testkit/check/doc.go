// Package check finds errors in histories: what clients of a lock did and when, by one clock.
// [Sweep] needs no search: every acquisition is an interval, from the return of acquire until its
// holder no longer considers the lock held. Intervals that exclude each other must be disjoint, and
// tokens must increase. It finds every overlap in O(n log n).
package check
