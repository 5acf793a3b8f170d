//go:build unix

// Package supervise runs a command under a lock. It ends the command, and every process that the
// command has started, before another process can get the lock.
//
// # The chain
//
// This process, the wrapper, starts a watchdog, which is the same program under another name. The
// watchdog starts the command. On Linux, both adopt orphans (PR_SET_CHILD_SUBREAPER). So every
// process of the command stays a descendant of the watchdog, even in another process group or
// session, after a double fork, and after the end of the command. If the watchdog is killed, these
// processes become descendants of the wrapper.
//
// If the lock is lost, one of these ends the command:
//
//  1. The wrapper, when the context of the lock ends. It has the watchdog send Command.Signal to
//     all processes of the command, and SIGKILL Command.KillAfter later, before the lease expires.
//  2. The watchdog, if the wrapper is gone or frozen. It knows the deadline of the lock and starts
//     to kill [KillReserve] before it.
//  3. The wrapper, if the watchdog was killed.
//
// A signal that the wrapper passes on goes to the process group of the command. If it asks to end, and
// other processes have not ended a second after the command, they are ended as after a loss.
//
// A kill walks the process tree from the top down, and repeats the walk until no process is left,
// since a process may fork while it is being killed. If processes belong to another user and cannot
// be killed, [Process.Wait] reports them, and the lock is not released while they run.
//
// If the lock is a file descriptor, the watchdog keeps it open until no process of the command is
// left.
//
// On systems other than Linux, only the process group of the command is supervised.
package supervise
