//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
)

// A Part is a part of the locks of a URL that nothing else uses, for tests: all keys, names or objects
// with a prefix, a table, or a subdirectory. Count must be called before the part is used.
type Part struct {
	URL   string   // of the part; it may hold a password
	New   bool     // its servers have to be declared new, since nothing is known about them under the prefix
	Names string   // the prefix of names, where they make the part
	Local bool     // the engine makes no connections over a network
	Hosts []string // of the servers, or those of its Sentinels
	Rate  int      // acquires per second that a server can bear which others use; 0 if it is not special
	Plain bool     // requests are those of Redis, without TLS
	Dead  Dead     // what a dead waiter costs

	// sweep counts the keys, rows, objects or files of the part, and deletes them if remove is true.
	sweep func(ctx context.Context, remove bool) (int, error)
}

// Dead is what a process costs the others if it dies while it waits for a lock.
type Dead int

// The costs.
const (
	DeadSeconds Dead = iota // two seconds
	DeadInTurn              // two seconds for each such process, one after the other
	DeadLeases              // the time of a place in a queue of records
	DeadNothing
)

// Count returns how many keys, rows, objects or files the part has.
func (p *Part) Count(ctx context.Context) (int, error) { return p.sweep(ctx, false) }

// Clear deletes all that the part has. It returns how much of that is left.
func (p *Part) Clear(ctx context.Context) (left int, err error) {
	if _, err := p.sweep(ctx, true); err != nil {
		return 0, err
	}
	return p.Count(ctx)
}

// PartOf returns the part of a URL that a prefix names. It connects to nothing.
func PartOf(raw, prefix string) (*Part, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed; write special characters in it as %XX")
	}
	s := schemeOf(u.Scheme)
	if s == nil {
		return nil, fmt.Errorf("%s is not known", u.Scheme)
	}
	part := s.part
	if part == nil {
		part = partsOf(s.name())
	}
	switch {
	case part != nil:
		return part(u, prefix)
	case s.open == nil:
		return nil, fmt.Errorf("%s is not supported here: %s", u.Scheme, InstallAll)
	}
	return nil, fmt.Errorf("%s has no servers that several processes share", u.Scheme)
}
