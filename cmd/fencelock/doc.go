//go:build unix

// Command fencelock runs commands under locks that many processes share, and shows,
// follows and breaks those locks.
//
//	fencelock run nightly -- ./backup.sh          one backup at a time
//	fencelock run -n nightly -- ./backup.sh       or exit 75 at once
//	fencelock run --limit 3 builds -- make        three at a time
//	fencelock run --tick 1m report -- ./report    once per tick across many crontabs
//	fencelock elect billing -- ./billing          one leader; the others wait
//	fencelock once migrate:42 -- ./migrate        once across all hosts; later calls get its output
//	fencelock acquire nightly --max-hold 1h ...   a lock that outlives this command
//	fencelock renew HANDLE --max-hold 1h          hold it for an hour from now
//	fencelock release HANDLE                      release it
//	fencelock limit --rate 10/m api -- curl ...   ten a minute across all hosts
//	fencelock pipe                                locks for a program in any language
//	fencelock ls                                  who holds what
//	fencelock status nightly                      who holds and who waits
//	fencelock holds billing && ./publish          only where the leader runs
//	fencelock watch invoice:                      events, one line each
//	fencelock ui                                  a page that shows the same
//	fencelock break nightly --reason "db3 died"   take a lock away
//	fencelock jobs                                scheduled jobs and their last runs
//	fencelock resign billing                      depose the leader
//	fencelock resize builds 5                     change a limit
//	fencelock init                                prepare a server once
//	fencelock doctor                              is the server set up correctly?
//	fencelock demo                                a frozen holder and its late write, in half a minute
//	fencelock completion bash                     a completion script
//	fencelock help run                            the help of a verb
//
// Each verb has a --help.
//
// # Where the locks are
//
// The flag --url, or the variable FENCELOCK_URL, names the engine: a directory of this host
// (file:///path), Redis (redis://, rediss://, redis+sentinel://, redis+cluster://), several
// independent Redis servers (redlock://), PostgreSQL (postgres://, and postgres+rows:// behind a
// pooler), a table of MariaDB or MySQL (mariadb://, mysql://), a bucket of S3 or another object store (s3://), or Lease objects of
// Kubernetes (k8s://). Without a URL, the locks are in a directory of this user on this host: they
// exclude neither other hosts nor other users. A command under a lock gets FENCELOCK_URL only with
// --pass-url.
//
// # What a command can rely on
//
// If run, elect or once loses the lock, it ends the command and all its processes before another
// process can get the lock. It sends --signal, and SIGKILL after --kill-after. If fencelock itself
// is killed or frozen, lock-watchdog, a small process that is the parent of the command, kills the
// command. The command finds FENCELOCK_NAME, FENCELOCK_TOKEN and FENCELOCK_OWNER in its
// environment. The token is greater than that of every earlier holder. A store that refuses smaller
// tokens is safe even if the command could not be ended.
//
// # Exit codes
//
// The exit code is that of the command, or one of these:
//
//	1    nobody holds the name (break, resign, holds), or the job is not known (jobs)
//	64   the command line is wrong
//	65   the output that once repeats is not complete
//	69   the server is unreachable
//	70   doctor found something broken, or demo failed
//	71   fencelock could not start its watchdog or get another resource
//	74   stdout could not be written
//	75   the lock is busy, or the rate is used up
//	76   the lock was lost while the command ran
//	78   the configuration is wrong, a permission is missing, or the login was refused
//	124  the command was stopped because of --max-hold
//	126  the command cannot be executed
//	127  the command was not found
//	128+n the command was killed by signal n, or signal n ended the wait
//
// # Output
//
// Data goes to stdout. With --json it is one object per line, to which later versions only add
// fields (docs/cli-json.md). Messages go to stderr and start with "fencelock:". An error is one
// line, sometimes followed by a line that starts with "try:". fencelock never blocks on stderr, so
// that it can always end a command in time.
package main
