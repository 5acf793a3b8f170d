// Command foreign checks a client in another language: it plays the other holder on a real server.
//
//	foreign redis://localhost:6379 -- python3 my_client.py
//
// The client is a program that reads orders, one a line, and answers each with one line; docs/vectors.md
// has them. It exits with 1 if a check fails. Run it in the folder lab.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

func main() {
	ttl := flag.Duration("ttl", 2*time.Second, "the TTL of the client's locks")
	skip := flag.String("skip", "", "checks to leave out, such as queue,break, separated by commas")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: foreign [flags] URL -- COMMAND...; the URL is redis:// or postgres://")
		flag.PrintDefaults()
	}
	flag.Parse()
	args := flag.Args()
	if len(args) > 1 && args[1] == "--" {
		args = append(args[:1:1], args[2:]...)
	}
	if len(args) < 2 {
		flag.Usage()
		os.Exit(2)
	}
	failed, err := judge(context.Background(), args[0], args[1:], *ttl, strings.Split(*skip, ","), func(line string) { fmt.Println(line) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(2)
	}
	if len(failed) > 0 {
		os.Exit(1)
	}
}

// judge does all checks but those to skip, each with a new process of the client. It returns the names of
// those that failed.
func judge(ctx context.Context, url string, command []string, ttl time.Duration, skip []string, say func(string)) (failed []string, err error) {
	engine, closing, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer closing()
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	if err := locks.Check(ctx); err != nil {
		return nil, err
	}
	for _, c := range checks {
		if slices.Contains(skip, c.name) {
			continue
		}
		if err := attempt(ctx, locks, command, ttl, c); err != nil {
			failed = append(failed, c.name)
			say(fmt.Sprintf("FAIL  %-8s %s: %v", c.name, c.what, err))
		} else {
			say(fmt.Sprintf("ok    %-8s %s", c.name, c.what))
		}
	}
	return failed, nil
}

// open connects to a server.
func open(ctx context.Context, url string) (engine fencelock.Engine, closing func(), err error) {
	switch {
	case strings.HasPrefix(url, "redis"):
		o, err := rueidis.ParseURL(url)
		if err != nil {
			return nil, nil, err
		}
		o.DisableCache, o.ConnWriteTimeout = true, 3*time.Second
		client, err := rueidis.NewClient(o)
		if err != nil {
			return nil, nil, err
		}
		e := redislock.New(client, nil)
		return e, func() { _ = e.Close(); client.Close() }, nil
	case strings.HasPrefix(url, "postgres"):
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		e := pglock.New(pool, nil)
		return e, func() { _ = e.Close(); pool.Close() }, nil
	}
	return nil, nil, errors.New("the URL is neither redis:// nor postgres://")
}
