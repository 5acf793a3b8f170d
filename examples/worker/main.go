// Command worker is an example: several processes work on one queue of tasks in PostgreSQL. Only
// one of them at a time works on a task, and its result is stored exactly once, even if processes
// are killed or frozen. Read worker.go first, then README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencelock/fencelock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run processes the queue that the arguments name until it is empty or ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(out)
	url := flags.String("url", "", "the database of the queue and the locks: postgres://...")
	ttl := flags.Duration("ttl", 2*time.Second, "how long the task of a dead worker stays locked")
	careless := flags.Bool("careless", false, "keep working after a lost lock, to see the queue refuse the result")
	if err := flags.Parse(args); err != nil {
		return err
	}
	q, locks, done, err := open(ctx, *url)
	if err != nil {
		return err
	}
	defer done()
	w := newWorker(q, locks.With(fencelock.Options{TTL: *ttl, Note: "worker"}), slog.New(slog.NewTextHandler(out, nil)).With("pid", os.Getpid()))
	w.careless = *careless
	return w.run(ctx)
}
