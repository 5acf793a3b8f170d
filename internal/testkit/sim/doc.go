// Package sim plays schedules of faults against the code that decides who holds
// a lock. One goroutine pops events off a heap in the order of a simulated
// clock: messages between clients and nodes, timers, pauses, crashes. The
// clients run quorum.Take, quorum.Renewal and hold.Hold, the very code that
// ships; a node is a model of what package redlock's scripts do on one server.
//
// A schedule follows from its class and its seed, bit for bit: the same two
// numbers give the same events, and a violation prints them. Classes say which
// assumptions they keep. Inside the model (clock rates within the drift, nodes
// that forget are quarantined, a majority decides, all clients have the same
// nodes) there must be no violation at all; outside of it some are expected,
// and counted.
//
// A [Fault] removes one line that keeps the lock safe; for each there is a class
// whose schedules show what it was good for.
package sim
