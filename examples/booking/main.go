// Command booking is an example: an HTTP service that books rooms. Several processes share
// one PostgreSQL database. The locks are on Redis or in the same database. No room is booked
// twice, even if processes are killed or stopped, and a request that is sent again gets the
// same answer. Read booking.go first, then README.md.
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
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock/goredis"
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
	redisAddr := flags.String("redis", os.Getenv("REDIS_ADDR"), "take the locks on Redis at this `address`, host:port; or set REDIS_ADDR. Without it, the locks are in the database")
	listen := flags.String("listen", "localhost:8080", "the `address` to serve on")
	ttl := flags.Duration("ttl", 10*time.Second, "how long a room stays locked if the process that holds it is killed or stopped")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	// A process that is stopped inside a transaction keeps its row of fence_floor locked, and
	// the other processes wait for that row. So the server ends such a transaction.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(ttl.Milliseconds(), 10)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	engine, closeEngine := newEngine(pool, *redisAddr)
	defer closeEngine()
	// A request that waits longer than this for its room is answered with 503.
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

// newEngine returns an engine on Redis, or in the database if addr is empty, and a function
// that closes it.
func newEngine(pool *pgxpool.Pool, addr string) (engine fencelock.Engine, closeEngine func()) {
	if addr == "" {
		e := pglock.New(pool, nil)
		return e, func() { _ = e.Close() } // the process ends: no lock is held any more
	}
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	e := goredis.New(client, nil)
	return e, func() {
		_ = e.Close()
		_ = client.Close()
	}
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
