//go:build unix

// Command fencelock runs commands under locks that many processes share, and shows,
// follows and breaks those locks.
//
//	fencelock run nightly -- ./backup.sh          one backup at a time
//	fencelock run -n nightly -- ./backup.sh       or exit 75 at once
//	fencelock run --limit 3 builds -- make        three at a time
//	fencelock run --tick 1m report -- ./report    once per tick, from many crontabs
//	fencelock elect billing -- ./billing          one leader; the others stand by
//	fencelock once migrate:42 -- ./migrate        once over all hosts; later ones get its output
//	fencelock limit --rate 10/m api -- curl ...   ten a minute on all hosts together
//	fencelock ls                                  who holds what
//	fencelock status nightly                      who holds and who waits
//	fencelock watch invoice:                      what happens, a line for each event
//	fencelock break nightly --reason "db3 died"   take a lock away
//	fencelock jobs                                the jobs of ticks, and how they last ended
//	fencelock resign billing                      the next one leads
//	fencelock resize builds 5                     change a limit for everybody
//	fencelock init                                what an engine needs once
//	fencelock doctor                              is the engine fit to keep promises?
//	fencelock completion bash                     words to complete in a shell
//	fencelock help run                            what a verb does and takes
//
// Each verb explains itself with --help.
//
// # Where the locks are
//
// The flag --url, or FENCELOCK_URL, names the engine: a directory of this host
// (file:///path), Redis (redis://, rediss://, redis+sentinel://, redis+cluster://),
// several independent Redis (redlock://), or PostgreSQL (postgres://). Without a URL
// locks are in a directory of this host and of the user alone: neither other hosts nor other users
// are excluded.
//
// # What a command can rely on
//
// A command that run, elect or once has started ends before its lock is given to others, with
// all the processes it has started: by --signal first, by SIGKILL when --kill-after is
// over, and by a second small process, lock-watchdog, which is the command's parent, if fencelock
// itself was killed or frozen. It finds FENCELOCK_NAME, FENCELOCK_TOKEN and FENCELOCK_OWNER in its
// environment. The token is greater than that of every holder before, so a store that
// refuses smaller ones is safe even from a command that could not be ended.
//
// # Exit codes
//
// They are the command's own, and
//
//	1    nobody holds what break or resign would break, or no job is there to pause
//	64   the command line is wrong
//	69   the engine cannot be reached
//	70   doctor found something broken
//	71   something of fencelock's own did not start
//	74   what belongs on stdout could not be written there
//	75   the lock is busy, or the rate is used up
//	76   the lock was lost while the command ran
//	78   a bad configuration, a missing right, a refused login
//	126  the command cannot be executed
//	127  the command was not found
//	128+n the command died of signal n, or signal n ended the wait
//
// # Voice
//
// Data goes to stdout, and with --json it is an object a line that only ever gets new
// fields (docs/cli-json.md). Talk goes to stderr, begins with "fencelock:", and a refusal
// is one line with one cause and perhaps a second one that begins with "try:". Nothing waits for
// a reader of stderr: a command must be ended in time whoever reads.
package main
