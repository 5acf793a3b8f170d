// Package filelock is the engine of one host: many processes, one directory, no
// server. It runs on Linux and macOS.
//
//	locks := fencelock.New(filelock.New("/var/lib/myapp/locks", nil), nil)
//
// # What it promises
//
// At most one exclusive holder among all processes of the host, first come first
// served between all waiters, fencing tokens that rise through crashes and power
// cuts, and a lock that is free at once when its holder dies: the locks are the
// kernel's (flock), so they end with the process. There is no TTL and nothing is
// renewed: a frozen holder keeps its lock until it is thawed, killed or broken.
//
// # What it is not
//
// It is no lock between hosts: network file systems are refused unless
// [Config.AllowNetwork] is set. It cannot defend itself against somebody who
// deletes its files: the holder learns at once and its lock is lost, but who
// deletes the whole directory may let a second holder in before that. Symbolic
// links and files of other users are refused, unless a group shares the directory
// ([Config.Group]). A child
// process that inherits the descriptors (see [Engine.Inherit]) keeps the lock.
//
// # How it works
//
//  1. Every name has a directory, which keeps the exact name in the file "name".
//  2. Whoever changes a name holds the flock of that directory, for well under a
//     millisecond: the gate.
//  3. Behind the gate every request makes a ticket: a file whose name says its
//     place, mode and state, and whose own flock lives as long as its process.
//     A ticket that is not locked is dead, and whoever sees it removes it.
//  4. The first living ticket may hold. It then takes the flock of the file
//     "lock" as well, so that flock(1) on that file and this engine exclude each
//     other, and either of the two mechanisms would do alone.
//  5. The file "token" is overwritten in place with max(previous + 1, clock in
//     microseconds) and synced before anybody sees the token. A minimum hold is
//     the file "not-before", kept in the same way. The limit that Resize has set
//     is the file "limit", which is replaced as a whole.
//  6. The ticket is renamed from waiting (w) to holding (h). Who leaves, or lets
//     others in beside it, rings for the first waiter that is alive and awake: a
//     byte into the FIFO beside that waiter's ticket. Nothing wakes them all.
//  7. The end of a holder's process is told to the first in line by the kernel
//     (pidfd). What makes no sound is looked for, ten times a second where it
//     matters and once a second elsewhere: a waiter that died or froze, a child
//     that outlived the holder. A waiter that is frozen is passed over and keeps
//     its place.
//  8. A holder hears of everything that happens to its ticket and its lock file
//     (inotify), and looks by itself. If either was removed or replaced, the
//     lock is lost.
//  9. Break removes the holder's ticket, with a note on who did it and why, waits
//     for the holder to let go, and kills it if it does not.
//
// # Its parts
//
// What is on disk is a directory, with a folder for each name. A nameLock is a folder
// whose gate somebody goes through, and a queue is what it finds there. What lives in
// this process alone are the holds, with a watcher that tells them of their files, and
// the bells of the waiters. A request is one Acquire under way, a blocker what it waits
// for. Engine passes calls on to them. Each has a mutex of its own if it needs one; no
// two are held together, and none while a callback runs.
//
// # What it costs
//
// A name costs one directory with four small files while it is used, and one more
// if it was resized. Once it has been idle for an hour it is removed, and its last
// token is folded into one file for all (".floor"); a name with a limit or with a
// minimum hold that is not over stays. The directory ".used" has an empty file for
// each name in use, so that [Engine.List] and [Engine.Watch] cost what is held.
package filelock
