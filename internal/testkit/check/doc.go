// Package check judges histories: what clients of a lock did, and when, by one
// clock. Three judges, cheapest first.
//
// [Sweep] needs no search. Every acquisition is an interval, from when acquire
// returned to when its holder stopped believing in it; intervals that exclude
// each other must be disjoint, and tokens must grow. It finds every overlap, in
// O(n log n).
//
// [GuardedCounter] is a protected resource. It counts, and who counts without the lock
// makes it miss a write; a guard refuses those.
//
// [TryLock] and [Register] search for an order of the calls that a model allows
// (linearizability, Herlihy and Wing 1990), with porcupine. The search may take
// exponential time: at most [MaxOps] calls a lock, few of unknown outcome, and a
// search that does not end is a failure.
package check
