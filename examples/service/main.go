// Command service is an example of a whole service with locks on Redis, as one of several instances
// runs it: payments over HTTP with a rate limit and idempotency keys, one instance that sends
// receipts, a report that one instance writes each minute, metrics, probes, and a shutdown that loses
// no lock. docs/service.md explains it. Read service.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what the command line says.
type config struct {
	listen, admin, redis string

	ttl    time.Duration
	charge time.Duration
	report time.Duration
	late   time.Duration
	drain  time.Duration
	stop   time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, cfg, log)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Error("service failed", "error", err)
		os.Exit(1)
	}
}

func parse(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	flags.StringVar(&c.listen, "listen", ":8080", "`address` of the API")
	flags.StringVar(&c.admin, "admin", ":9090", "`address` of probes and metrics")
	flags.StringVar(&c.redis, "redis", "localhost:6379", "`address` of Redis")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "how long a crashed instance blocks the others")
	flags.DurationVar(&c.charge, "charge", 200*time.Millisecond, "how long the payment provider takes")
	flags.DurationVar(&c.report, "report", time.Minute, "time between two reports")
	flags.DurationVar(&c.late, "late", time.Minute, "how late a report may start")
	flags.DurationVar(&c.drain, "drain", 5*time.Second, "how long requests still arrive after the probe of readiness has failed")
	flags.DurationVar(&c.stop, "stop", 15*time.Second, "how long requests and background work may take to end after that")
	return c, flags.Parse(args)
}
