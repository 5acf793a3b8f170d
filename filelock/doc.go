// Package filelock is the engine for the processes of one host: one directory, no server. It runs
// on Linux and macOS.
//
//	locks := fencelock.New(filelock.New("/var/lib/myapp/locks", nil), nil)
//
// # What it promises
//
//   - At most one exclusive holder among all processes of the host.
//   - First come, first served between all waiters.
//   - Fencing tokens that increase through crashes and power cuts.
//   - A lock that is free at once when its holder dies: the locks are the kernel's (flock), and end
//     with the process.
//
// There is no TTL and nothing is renewed. A frozen holder keeps its lock until it is resumed,
// killed or broken.
//
// # What it cannot do
//
// It does not lock between hosts: network file systems are refused unless [Config.AllowNetwork] is
// set. It cannot prevent that a user deletes its files. The holder is notified at once and its lock
// is lost, but if the whole directory is deleted, a second holder may get in before that. Symbolic
// links and files of other users are refused, unless a group shares the directory ([Config.Group]).
// A child process that inherits the descriptors (see [Engine.Inherit]) keeps the lock.
//
// # How it works
//
//  1. Every name has a directory, which stores the exact name in the file "name".
//  2. A process that changes a name holds the flock of that directory, the directory lock (called
//     the gate in the code). An acquire holds it for well under a millisecond.
//  3. Under the directory lock every request makes a ticket: a file whose name contains its place,
//     mode and state, and whose flock is held as long as its process lives. A ticket that is not
//     locked is dead, and the next process that sees it removes it.
//  4. The first live ticket may hold. Its request then takes the flock of the file "lock", too, so
//     that flock(1) on that file and this engine exclude each other. Each of the two mechanisms
//     would be enough by itself.
//  5. The file "token" is overwritten in place with max(previous + 1, clock in microseconds), and
//     synced before the token is returned. A minimum hold is the file "not-before", written in the
//     same way. The limit set by Resize is the file "limit", which is replaced as a whole.
//  6. The ticket is renamed from waiting (w) to holding (h). A request that leaves, or lets others
//     in beside it, wakes the first waiter that is alive and not stopped, by a byte into the FIFO
//     beside that waiter's ticket. No event wakes all waiters.
//  7. When a holder's process ends, the kernel notifies the first waiter (pidfd). Other changes are
//     found by checks, ten times a second where nothing else reports them and once a second
//     elsewhere: a waiter that died or froze, a child that outlived the holder. A frozen waiter is
//     passed over and keeps its place.
//  8. A holder is notified of every change of its ticket and its lock file (inotify), and also
//     checks by itself. If either was removed or replaced, the lock is lost.
//  9. Break appends who broke the lock, and why, to the holder's ticket, removes it, waits until
//     the holder has released, and kills the holder if it does not.
//
// # What it costs
//
// A name in use costs one directory with four small files, and one more file if it was resized.
// After an hour without use it is removed, and its last token is folded into one file for all names
// (".floor"). A name with a limit, or with a minimum hold that is not over, stays. The directory
// ".used" has an empty file for each name in use, so that [Engine.List] and [Engine.Watch] cost
// only what is held.
//
// The invariants and the interleavings are in docs/internals/files.md.
package filelock
