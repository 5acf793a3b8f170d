// Package filelock implements fencelock's locks on files in a directory, for the processes of one
// host. It needs no server and runs on Linux and macOS.
//
//	locks := fencelock.New(filelock.New("/var/lib/myapp/locks", nil), nil)
//
// # Guarantees
//
// A lock has at most one exclusive holder among all processes of the host. Waiters are served first
// come, first served. Fencing tokens increase across crashes and power cuts. If the holder dies,
// its lock is released immediately, because the locks are the kernel's (flock) and end with the
// process. There is no TTL and nothing is renewed: a frozen holder keeps its lock until it is
// resumed, killed or broken.
//
// # Limits
//
// Locks do not work between hosts: network file systems are refused unless [Config.AllowNetwork] is
// set.
//
// The engine cannot protect itself against a user who deletes its files. The holder is notified at
// once and its lock is lost, but after the whole directory is deleted a second holder may get in
// before that. Links, special files and files of other users are refused; with [Config.Group], files
// of other users are accepted. So a user who can write to the directory cannot make the engine
// change anything outside it.
//
// A child process that inherits the descriptors (see [Engine.Inherit]) keeps the lock.
//
// # How it works
//
//  1. Every name has a directory. The file "name" in it contains the exact name.
//  2. A process that changes a name holds the flock of that directory, usually for well under a
//     millisecond. This flock is called the directory lock.
//  3. While it holds the directory lock, every request creates a ticket: a file whose name has its
//     place, mode and state, and whose own flock lives as long as its process. A ticket that is not
//     locked is dead, and the next process that finds it removes it.
//  4. The first live ticket may hold. Its process then also takes the flock of the file "lock", so
//     that flock(1) on that file and this engine exclude each other. Either mechanism would be
//     sufficient between processes of this engine.
//  5. The file "token" is overwritten in place with max(previous + 1, clock in microseconds) and
//     synced before the token is returned. A minimum hold is stored in the file "not-before" in the
//     same way. The limit set by Resize is in the file "limit", which is replaced as a whole.
//  6. The ticket is renamed from waiting (w) to holding (h). A process that releases the lock, or
//     lets others share it, notifies the first waiter that is alive and not frozen: it writes a byte
//     into the FIFO beside that waiter's ticket. Other waiters are not woken.
//  7. The kernel notifies the first waiter when the holder's process ends (pidfd). Some events have
//     no notification: a waiter that died or froze, and the end of a child that outlived the holder.
//     Waiters poll for these, ten times a second where it matters and once a second elsewhere. A
//     frozen waiter is skipped and keeps its place.
//  8. A holder is notified of changes to its ticket and to the lock file (inotify), and also polls.
//     If either file was removed or replaced, the lock is lost.
//  9. Break appends to the holder's ticket who broke the lock and why, and removes the ticket. It
//     waits for the holder to release the lock, and kills its process if it does not.
//
// # Structure of the package
//
// A directory contains a folder for each name. A nameLock is a folder with its directory lock, and
// a queue is the list of tickets found in it. The holds of this process, with a watcher that
// reports changes of their files, and the notifications of its waiters (waker) exist in memory
// only. A request is one call of Acquire, and a blocker is what it waits for. Engine delegates to
// these. Types that need a mutex have their own; no two are held at the same time, and none during
// a callback.
//
// # Disk space
//
// While it is used, a name needs a directory with four small files, and one more file if it was
// resized. Once the name has been idle for an hour it is removed, and its last token is kept in one
// file for all names (".floor"). A name with a limit set by Resize, or with a minimum hold that has
// not ended, stays. The directory ".used" has an empty file for each name in use, so that the cost
// of [Engine.List] and [Engine.Watch] depends only on the names in use.
package filelock
