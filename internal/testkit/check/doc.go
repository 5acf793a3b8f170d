// Package check judges histories: what clients of a lock did, and when, by one
// clock. Two judges, the cheaper one first.
//
// [Sweep] needs no search. Every acquisition is an interval, from when acquire
// returned to when its holder stopped believing in it; intervals that exclude
// each other must be disjoint, and tokens must grow. It finds every overlap, in
// O(n log n).
//
// [TryLock] and [Register] search for an order of the calls that a model allows
// (linearizability, Herlihy and Wing 1990), with porcupine. The search may take
// exponential time: at most [MaxOps] calls a lock, few of unknown outcome, and a
// search that does not end is a failure.
package check
