// Command worker is an example: several processes work on one queue of tasks,
// each task is done by one of them at a time, and its result is written once,
// whoever is killed or frozen meanwhile. Read worker.go first, then README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const usage = `usage: worker [flags] COMMAND

  add    put tasks into the queue
  work   work on the queue until it is empty: start some, and kill -9 some
  show   print what became of the tasks
  demo   all at once: add, several workers of which one is killed now and then, show

Try, with a server of your own to play with:

  go run ./examples/worker -url redis://localhost:6379 demo
  go run ./examples/worker -url postgres://localhost/test demo

flags:
`

const envURL = "FENCELOCK_URL"

// settings are the flags.
type settings struct {
	url      string
	ttl      time.Duration
	tasks    int
	workers  int
	kill     time.Duration
	longest  time.Duration
	careless bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.url, "url", os.Getenv(envURL), "the server of the queue and the locks: redis://... or postgres://...; or set "+envURL)
	flags.DurationVar(&s.ttl, "ttl", 2*time.Second, "how long a dead worker's task stays locked")
	flags.IntVar(&s.tasks, "tasks", 100, "add, demo: how many tasks")
	flags.DurationVar(&s.longest, "longest", 200*time.Millisecond, "add, demo: how long a task takes at most")
	flags.IntVar(&s.workers, "workers", 5, "demo: how many workers")
	flags.DurationVar(&s.kill, "kill", time.Second, "demo: kill a worker this often")
	flags.BoolVar(&s.careless, "careless", false, "work: go on after a lost lock, to see the store refuse the result")
	if err := flags.Parse(args); err != nil {
		return err
	}
	command := flags.Arg(0)
	if err := flags.Parse(flags.Args()[min(1, flags.NArg()):]); err != nil { // flags may follow as well
		return err
	}
	store, err := open(ctx, s.url)
	if err != nil {
		return err
	}
	defer store.close()
	switch command {
	case "add":
		return add(ctx, store.queue, s)
	case "work":
		return newWorker(store, s, out).run(ctx)
	case "show":
		return show(ctx, store.queue, out)
	case "demo":
		return demo(ctx, store.queue, s, out)
	}
	return fmt.Errorf("no command %q; try: worker --help", command)
}

// add puts tasks of varying length into the queue.
func add(ctx context.Context, q Queue, s settings) error {
	for range s.tasks {
		if err := q.Add(ctx, rand.N(max(s.longest, 1))); err != nil {
			return err
		}
	}
	return nil
}

// show counts what became of the tasks.
func show(ctx context.Context, q Queue, out io.Writer) error {
	tasks, err := q.States(ctx)
	if err != nil {
		return err
	}
	done, twice, again := 0, 0, 0
	for _, t := range tasks {
		done += min(1, len(t.Results))
		twice += max(1, len(t.Results)) - 1
		again += max(1, t.Tries) - 1
	}
	fmt.Fprintf(out, "%d tasks: %d done, %d results too many, %d takeovers\n", len(tasks), done, twice, again)
	return nil
}

// demo adds tasks and lets a crew of this very program do them.
func demo(ctx context.Context, q Queue, s settings, out io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := add(ctx, q, s); err != nil {
		return err
	}
	c := crew{
		size:    s.workers,
		every:   s.kill,
		args:    []string{exe, "-ttl", s.ttl.String(), "work"},
		prepare: func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), envURL+"="+s.url) }, // it may hold a password
		out:     out,
		disturb: func(p *os.Process) { _ = p.Kill() }, // it may just have ended
	}
	start := time.Now()
	if err := c.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d workers were killed in %v\n", c.disturbed, time.Since(start).Round(time.Millisecond))
	return show(ctx, q, out)
}

// logger writes one line for each thing that happens, with the worker's name.
func logger(out io.Writer) *slog.Logger {
	short := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: short})).With("worker", me())
}

// me is the name of this worker.
func me() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return fmt.Sprintf("%s:%d", cmp.Or(host, "localhost"), os.Getpid())
}
