// Command booking is an example: an HTTP service that books rooms. It runs as several
// processes on one PostgreSQL. No room is booked twice, whichever of them are killed or
// frozen meanwhile, and a request that is sent again gets the same answer. Read booking.go
// first, then README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "booking:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("booking", flag.ContinueOnError)
	flags.SetOutput(out)
	url := flags.String("url", os.Getenv("DATABASE_URL"), "the database: postgres://...; or set DATABASE_URL")
	listen := flags.String("listen", "localhost:8080", "where to serve")
	ttl := flags.Duration("ttl", 10*time.Second, "how long the rooms of a process that died, or was stopped, stay locked")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	// The server ends the transaction of a process that is stopped in it: others wait for
	// the row of its fence.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(ttl.Milliseconds(), 10)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine := pglock.New(pool, nil)
	defer engine.Close()
	// Whoever waits for a room for longer than this is asked to come again.
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: *ttl, Wait: 10 * time.Second})
	d := &desk{pool: pool, locks: locks}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /bookings", d.post)
	routes.HandleFunc("GET /bookings", d.list)
	return serve(ctx, *listen, routes, out)
}

// serve serves until ctx ends, and then until the requests under way are answered.
func serve(ctx context.Context, listen string, routes http.Handler, out io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", l.Addr())
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with Shutdown
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
