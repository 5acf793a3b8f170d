// Package sim runs simulated schedules of faults against the code that decides who holds a lock.
// One goroutine takes events from a heap in the order of a simulated clock: messages between
// clients and nodes, timers, pauses, crashes. The clients run quorum.Take, quorum.Renewal and
// hold.Hold, which is the code that ships. A node is a model of what package redlock's scripts do
// on one server.
//
// A schedule is determined by its class and its seed: the same two numbers produce the same events,
// and violations report them. Classes state which assumptions hold. Within the model (clock rates
// within the drift, quarantine for nodes that lost data, a majority decides, all clients have the
// same nodes) there must be no violation. Outside of it some are expected and counted.
//
// A [Mutant] lacks one line of code that keeps the lock safe. For each mutant there is a class
// whose schedules show a violation.
package sim
