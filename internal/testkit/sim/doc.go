// Package sim runs random schedules of faults against the code that decides who holds a lock. One
// goroutine takes events from a heap in the order of a simulated clock: messages between clients
// and nodes, timers, pauses, crashes. The clients run quorum.Take, quorum.Renewal and hold.Hold,
// the code that ships; a node is a model of what package redlock's scripts do on one server.
//
// A schedule follows from its class and its seed, bit for bit, and a violation prints both. A class
// says which assumptions it keeps. Inside the model (clock rates within the drift, nodes that lose
// data wait, a majority decides, all clients have the same nodes) there must be no violation.
// Outside of it some are expected, and counted.
//
// A [Mutant] removes one line that keeps the lock safe. Each has a class whose schedules show the
// violation.
package sim
