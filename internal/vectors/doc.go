// Package vectors has tests only. They replay docs/vectors, the recorded exchanges of the protocols,
// against real servers; with the flag -update they record the answers again.
package vectors
