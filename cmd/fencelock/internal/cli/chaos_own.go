//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/fencelock/internal/engineurl"
	"github.com/fencelock/fencelock/internal/chaos"
)

const (
	ownRate     = 200              // acquires per second that a server can bear which others use
	ownPatience = 30 * time.Second // for counting and deleting what is under the prefix
)

// onOwn tests the engine of the URL, under a prefix that nothing uses.
func (c *chaosCmd) onOwn(ctx context.Context, a *app, config chaos.Config) error {
	if a.url == "" {
		return &misuse{error: errors.New("chaos: write --engine NAME to start servers, or --url URL to use running ones")}
	}
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("chaos-%08x:", rand.Uint32())
	}
	part, err := engineurl.PartOf(a.url, c.Prefix)
	if err != nil {
		return &exitError{code: exitConfig, err: err}
	}
	if far := distant(part.Hosts); far != "" && !c.Yes {
		return &misuse{fmt.Errorf("chaos: %s is another host; its server would get up to %d acquires per second, and connections that break", far, c.rate()), "--yes, if it may be used for that"}
	}
	if err := c.refuseUsed(ctx, part); err != nil {
		return err
	}
	if err := c.prepare(ctx, part); err != nil {
		return &exitError{code: exitUnavailable, err: errors.Join(err, c.cleanUp(a, part))}
	}
	scheme, _, _ := strings.Cut(a.url, ":")
	config.Rate = float64(c.rate())
	config.Own = &chaos.Own{Name: scheme, URL: part.URL, Names: part.Names, Local: part.Local}
	a.say("using only what begins with %s", c.Prefix)
	return c.run(ctx, a, config, func() error { return c.cleanUp(a, part) })
}

func (c *chaosCmd) rate() int {
	if c.Rate == 0 {
		return ownRate
	}
	return c.Rate
}

// refuseUsed refuses a part that is in use.
func (c *chaosCmd) refuseUsed(ctx context.Context, part *engineurl.Part) error {
	limited, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	n, err := part.Count(limited)
	switch {
	case err != nil:
		return &exitError{code: exitUnavailable, err: err}
	case n > 0:
		return &exitError{code: exitUnavailable, err: fmt.Errorf("the prefix %s is in use: %d keys, rows or files\ntry: another --prefix", c.Prefix, n)}
	}
	return nil
}

// prepare declares the servers of a part new, and acquires a lock, so that a user without the rights
// learns of it before the workers wait for their first locks.
func (c *chaosCmd) prepare(ctx context.Context, part *engineurl.Part) error {
	limited, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	engine, closeEngine, err := engineurl.Open(limited, part.URL)
	if err != nil {
		return err
	}
	if i, ok := engine.(initer); ok && part.New {
		err = i.Init(limited)
	}
	if err == nil {
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: c.TTL})
		err = locks.Do(limited, part.Names+"first", func(context.Context) error { return nil })
	}
	return errors.Join(err, closeEngine())
}

// cleanUp deletes the part and verifies that nothing is left.
func (c *chaosCmd) cleanUp(a *app, part *engineurl.Part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), ownPatience)
	defer cancel()
	err := part.Clear(ctx)
	n, counted := part.Count(ctx)
	switch {
	case err != nil || counted != nil:
		return fmt.Errorf("what begins with %s could not be deleted: %w", c.Prefix, errors.Join(err, counted))
	case n > 0:
		return fmt.Errorf("%d keys, rows or files that begin with %s could not be deleted", n, c.Prefix)
	}
	a.say("deleted what began with %s; nothing is left", c.Prefix)
	return nil
}

// distant returns the first host that is not this one, or "".
func distant(hosts []string) string {
	for _, host := range hosts {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		ip, err := netip.ParseAddr(name)
		near := name == "localhost" || strings.HasPrefix(name, "/") || err == nil && ip.IsLoopback()
		if !near {
			return name
		}
	}
	return ""
}
