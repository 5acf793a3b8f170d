//go:build unix

package chaoscli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/chaos"
	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/cmd/internal/cli"
)

const (
	ownRate     = 200              // acquires per second that a server can bear which others use
	ownPatience = 30 * time.Second // for counting and deleting what is under the prefix
)

// onOwn tests the engine of the URL, under a prefix that nothing uses.
func (c *chaosCmd) onOwn(ctx context.Context, a *cli.App, config chaos.Config) error {
	if a.URL == "" {
		return cli.Misuse(errors.New("chaos: write --engine NAME to start servers, or --url URL to use running ones"), "")
	}
	c.Prefix = cmp.Or(c.Prefix, fmt.Sprintf("chaos-%08x:", rand.Uint32()))
	box, err := sandbox.Of(a.URL, c.Prefix)
	if err != nil {
		return cli.Exit(cli.ExitConfig, err)
	}
	rate := cmp.Or(c.Rate, box.Rate, ownRate)
	if far := distant(box.Hosts); far != "" && !c.Yes {
		return cli.Misuse(fmt.Errorf("chaos: %s is another host; its server would get up to %d acquires per second, and connections that break", far, rate), "--yes, if it may be used for that")
	}
	limited, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	switch n, err := box.Count(limited); {
	case err != nil:
		return cli.Exit(cli.ExitUnavailable, err)
	case n > 0:
		return cli.Exit(cli.ExitUnavailable, fmt.Errorf("the prefix %s is in use: %d keys, rows, objects or files\ntry: another --prefix", c.Prefix, n))
	}
	scheme, _, _ := strings.Cut(a.URL, ":")
	config.Rate = float64(rate)
	config.Own = &chaos.Own{Name: scheme, Sandbox: box}
	a.Say("using only what begins with %s", c.Prefix)
	return c.run(ctx, a, config, func() error { return c.cleanUp(a, box) })
}

// cleanUp deletes the box and verifies that nothing is left.
func (c *chaosCmd) cleanUp(a *cli.App, box *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Context), ownPatience)
	defer cancel()
	switch left, err := box.Clear(ctx); {
	case err != nil:
		return fmt.Errorf("what begins with %s could not be deleted: %w", c.Prefix, err)
	case left > 0:
		return fmt.Errorf("%d keys, rows, objects or files that begin with %s could not be deleted", left, c.Prefix)
	}
	a.Say("deleted what began with %s; nothing is left", c.Prefix)
	return nil
}

// distant returns the first host that is not this one, or "".
func distant(hosts []string) string {
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if ip := net.ParseIP(host); host != "localhost" && !strings.HasPrefix(host, "/") && !ip.IsLoopback() {
			return host
		}
	}
	return ""
}
